/* NVRTC in software, for tests: what it compiles to is the source itself, in which the software driver
 * finds the names of the kernels. */
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_PROGRAM = 4, COMPILATION = 6 };

struct program {
    char *source;
    int compiled;
};

EXPORT int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int count,
                              const char *const *headers, const char *const *names) {
    (void)name, (void)count, (void)headers, (void)names;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    return SUCCESS;
}

EXPORT int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
    (void)count, (void)options;
    if (!program) return INVALID_PROGRAM;
    program->compiled = strstr(program->source, "__global__ ") != NULL;
    return program->compiled ? SUCCESS : COMPILATION;
}

EXPORT int nvrtcGetProgramLogSize(struct program *program, size_t *size) {
    (void)program;
    *size = 1;
    return SUCCESS;
}

EXPORT int nvrtcGetProgramLog(struct program *program, char *log) {
    (void)program;
    *log = 0;
    return SUCCESS;
}

EXPORT int nvrtcGetCUBINSize(struct program *program, size_t *size) {
    if (!program || !program->compiled) return INVALID_PROGRAM;
    *size = strlen(program->source) + 1;
    return SUCCESS;
}

EXPORT int nvrtcGetCUBIN(struct program *program, char *binary) {
    if (!program || !program->compiled) return INVALID_PROGRAM;
    strcpy(binary, program->source);
    return SUCCESS;
}

EXPORT int nvrtcDestroyProgram(struct program **program) {
    if (!program || !*program) return INVALID_PROGRAM;
    free((*program)->source);
    free(*program);
    *program = NULL;
    return SUCCESS;
}
