/* Functions of the API: defined with API, counted, found by cuGetProcAddress.
 *
 * The body of every function runs under one lock, which is released while it waits and while work is
 * carried out. */
#ifndef API_H
#define API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "faults.h"

typedef enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CONTEXT_IS_DESTROYED = 709,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    UPDATE_FAILURE = 910,
} CUresult;

typedef uintptr_t handle;

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

struct function {
    struct fault_point point; /* its name is the name in the API, without the suffix of the symbol */
    int since;                /* the version of CUDA from which on the name has this signature */
    const char *symbol;
    void *address;
    int flags;
    struct function *next;
};

enum { EARLY = 1, /* can be called before cuInit and in a forked child */
       CONCLUDES = 2 /* a fault doesn't keep the body from running: it finds the code in `verdict` */ };

struct call {
    CUresult code, injected;
    bool after, locked;
};

void function_add(struct function *function);
bool call_begin(struct function *function, struct call *call);
CUresult call_end(struct call *call);
bool driver_forked(void); /* whether this is a child of a process that had initialised the driver */
void count_unknown(const char *name);

extern _Thread_local CUresult verdict;

#define MAP0(m, ...)
#define MAP1(m, t, a) m(t, a)
#define MAP2(m, t, a, ...) m(t, a), MAP1(m, __VA_ARGS__)
#define MAP3(m, t, a, ...) m(t, a), MAP2(m, __VA_ARGS__)
#define MAP4(m, t, a, ...) m(t, a), MAP3(m, __VA_ARGS__)
#define MAP5(m, t, a, ...) m(t, a), MAP4(m, __VA_ARGS__)
#define MAP6(m, t, a, ...) m(t, a), MAP5(m, __VA_ARGS__)
#define MAP7(m, t, a, ...) m(t, a), MAP6(m, __VA_ARGS__)
#define MAP8(m, t, a, ...) m(t, a), MAP7(m, __VA_ARGS__)
#define MAP9(m, t, a, ...) m(t, a), MAP8(m, __VA_ARGS__)
#define MAP10(m, t, a, ...) m(t, a), MAP9(m, __VA_ARGS__)
#define MAP11(m, t, a, ...) m(t, a), MAP10(m, __VA_ARGS__)
#define PARAMETER(t, a) UNUSED t a
#define ARGUMENT(t, a) a

/* API(number of parameters, flags, name, since, symbol, type, parameter, ...) { body } */
#define API(n, flags_, name_, since_, symbol_, ...)                                                         \
    EXPORT CUresult symbol_(MAP##n(PARAMETER, __VA_ARGS__));                                                \
    static CUresult symbol_##_body(MAP##n(PARAMETER, __VA_ARGS__));                                         \
    static struct function symbol_##_function = {.point = {.name = #name_},                                 \
                                                 .since = since_,                                           \
                                                 .symbol = #symbol_,                                        \
                                                 .address = (void *)symbol_,                                \
                                                 .flags = flags_};                                          \
    __attribute__((constructor)) static void symbol_##_add(void) { function_add(&symbol_##_function); }     \
    CUresult symbol_(MAP##n(PARAMETER, __VA_ARGS__)) {                                                      \
        struct call call;                                                                                   \
        if (call_begin(&symbol_##_function, &call))                                                         \
            call.code = symbol_##_body(MAP##n(ARGUMENT, __VA_ARGS__));                                      \
        return call_end(&call);                                                                             \
    }                                                                                                       \
    static CUresult symbol_##_body(MAP##n(PARAMETER, __VA_ARGS__))

/* Return from a body what is not success. */
#define TRY(expression)                            \
    do {                                           \
        CUresult code_ = (expression);             \
        if (code_ != SUCCESS) return code_;        \
    } while (0)

#endif
