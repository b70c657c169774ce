/* hiprtc forwarded to NVRTC: the functions have the same parameters, and the codes the same numbers.
 *
 * Kernels are compiled for the device 0 of this process, whatever the options say: an architecture of AMD's
 * means nothing to NVRTC. Without a device the answer is PTX. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *program;
typedef const char *const *strings;

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INTERNAL_ERROR = 11 };
enum { MAJOR = 75, MINOR = 76 }; /* the attributes of a device in the CUDA driver */

/* NVRTC_FUNCTIONS(m): m(what both names end with, parameters) */
#define NVRTC_FUNCTIONS(m)                                                     \
    m(CreateProgram, program *, const char *, const char *, int, strings, strings) \
    m(DestroyProgram, program *)                                               \
    m(CompileProgram, program, int, strings)                                   \
    m(GetPTXSize, program, size_t *)                                           \
    m(GetPTX, program, char *)                                                 \
    m(GetCUBINSize, program, size_t *)                                         \
    m(GetCUBIN, program, char *)

#define MEMBER(name, ...) int (*name)(__VA_ARGS__);
static struct {
    NVRTC_FUNCTIONS(MEMBER)
} nvrtc;

static pthread_once_t loading = PTHREAD_ONCE_INIT;
static char architecture[32]; /* the option, or nothing */

static int missing(void) { return INTERNAL_ERROR; }

static void find_architecture(void *driver) {
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*get)(int *, int) = dlsym(driver, "cuDeviceGet");
    int (*ask)(int *, int, int) = dlsym(driver, "cuDeviceGetAttribute");
    int device, major, minor;
    if (!init || !get || !ask) return;
    if (init(0) || get(&device, 0) || ask(&major, MAJOR, device) || ask(&minor, MINOR, device)) return;
    snprintf(architecture, sizeof architecture, "-arch=sm_%d%d", major, minor);
}

static void load(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *library = NULL, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW);
#define FIND(name, ...)                                          \
    if (library) *(void **)&nvrtc.name = dlsym(library, "nvrtc" #name); \
    if (!nvrtc.name) *(void **)&nvrtc.name = (void *)missing;
    NVRTC_FUNCTIONS(FIND)
    if (driver) find_architecture(driver);
}

#define FORWARD(function, ...) (pthread_once(&loading, load), known(nvrtc.function(__VA_ARGS__)))

static int known(int code) { return code > INTERNAL_ERROR ? INTERNAL_ERROR : code; }

/* What hiprtc's own kernels have and NVRTC's don't: a clock of 100 MHz. */
static const char PRELUDE[] =
    "inline __device__ long long wall_clock64() {"
    " unsigned long long now;"
    " asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now));"
    " return now / 10; }\n"
    "#line 1\n";

EXPORT int hiprtcCreateProgram(
    program *made, const char *source, const char *name, int count, strings headers, strings names) {
    if (!source) return INVALID_INPUT;
    char *theirs = malloc(sizeof PRELUDE + strlen(source));
    if (!theirs) return OUT_OF_MEMORY;
    strcpy(stpcpy(theirs, PRELUDE), source);
    int code = FORWARD(CreateProgram, made, theirs, name, count, headers, names);
    free(theirs);
    return code;
}

EXPORT int hiprtcDestroyProgram(program *made) { return FORWARD(DestroyProgram, made); }

EXPORT int hiprtcCompileProgram(program made, int count, strings options) {
    pthread_once(&loading, load);
    const char **theirs = calloc(count > 0 ? count + 1 : 1, sizeof *theirs);
    int kept = 0;
    if (!theirs) return OUT_OF_MEMORY;
    for (int i = 0; i < count; i++)
        if (strncmp(options[i], "--offload-arch=", 15) && strncmp(options[i], "--gpu-architecture=", 19))
            theirs[kept++] = options[i];
    if (*architecture) theirs[kept++] = architecture;
    int code = FORWARD(CompileProgram, made, kept, theirs);
    free(theirs);
    return code;
}

EXPORT int hiprtcGetCodeSize(program made, size_t *nbytes) {
    pthread_once(&loading, load);
    return *architecture ? FORWARD(GetCUBINSize, made, nbytes) : FORWARD(GetPTXSize, made, nbytes);
}

EXPORT int hiprtcGetCode(program made, char *code) {
    pthread_once(&loading, load);
    return *architecture ? FORWARD(GetCUBIN, made, code) : FORWARD(GetPTX, made, code);
}
