/* A CUDA driver in software, for tests: the types and the state that its files share.
 *
 * The body of every function runs under one lock, which is released while it waits and while work is
 * carried out. Handles are numbers that are never used twice, so that a stale one is always noticed. */
#ifndef DRIVER_H
#define DRIVER_H

#include <pthread.h>
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

/* ---- functions: defined with API, found by cuGetProcAddress ------------------------------------ */

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

/* ---- handles ------------------------------------------------------------------------------------- */

enum kind { CONTEXT, STREAM, EVENT, GRAPH, NODE, EXECUTABLE, MODULE, FUNCTION, KERNEL, LIBRARY, KINDS };

handle handle_new(enum kind kind, void *object);
void *handle_get(handle handle, enum kind kind); /* null if there is no such thing, which is counted */
bool handle_is(handle handle, enum kind kind);
void handle_drop(handle handle);
size_t handle_live(enum kind kind);

/* ---- the lock ------------------------------------------------------------------------------------ */

void driver_lock(void);
void driver_unlock(void);
void driver_wait(void);     /* until something has got on; the lock is free meanwhile */
void driver_progress(void); /* something has */
extern pthread_mutex_t driver_mutex;
extern int driver_devices;

/* ---- contexts ------------------------------------------------------------------------------------ */

struct context {
    handle handle;
    int device;
    bool primary;
    int retained;
    size_t pending; /* operations that have been submitted and are not done */
    struct stream *legacy;
};

CUresult context_current(struct context **context); /* 201 without one */
void context_idle(handle context);                  /* wait until nothing is pending, or it is destroyed */
unsigned long long thread_number(void);             /* of this thread; never used twice */

/* ---- work: what a stream does and what a node stands for ----------------------------------------- */

/* The numbers of the node types in the API. */
enum work_kind { WORK_KERNEL = 0, WORK_COPY = 1, WORK_FILL = 2, WORK_HOST = 3, WORK_CHILD = 4,
    WORK_EMPTY = 5, WORK_ALLOC = 10, WORK_FREE = 11 };

enum { MOST_PARAMETERS = 8, MOST_PARAMETER_BYTES = 128 };

struct geometry {
    unsigned grid[3], block[3], shared;
};

struct native {
    const char *name;
    unsigned count;
    unsigned sizes[MOST_PARAMETERS];
    void (*run)(const struct geometry *geometry, void *const *parameters);
};

typedef void (*host_function)(void *);

/* The parameters of a memset node in the API. The width is counted in elements. */
struct fill {
    void *target;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};

struct work {
    enum work_kind kind;
    handle context; /* of a node */
    void *target, *source;
    size_t nbytes;
    struct fill fill;
    host_function host;
    void *data;
    struct allocation *memory;
    handle function; /* of a kernel: a function's or a kernel's handle, whichever was launched */
    const struct native *native;
    struct geometry geometry;
    _Alignas(16) unsigned char parameters[MOST_PARAMETER_BYTES];
};

void work_run(const struct work *work);
bool work_fill(struct work *work, const struct fill *fill); /* false: no such fill is possible */
const struct native *native_find(const char *name);

/* ---- streams ------------------------------------------------------------------------------------- */

struct marker { /* the end of an operation */
    int references;
    bool done;
};

struct nodes { /* an array that grows */
    struct node **items;
    size_t count, capacity;
};

void nodes_add(struct nodes *nodes, struct node *node);
bool nodes_have(const struct nodes *nodes, const struct node *node);
void nodes_set(struct nodes *nodes, const struct nodes *to);
void nodes_free(struct nodes *nodes);

struct stream {
    handle handle;
    struct context *context;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool legacy;
    void *thread; /* whose per-thread stream this is */
    struct queue *queue;
    struct marker *last;
    struct capture *capture;
    struct nodes frontier; /* in a capture: what the next node will depend on */
    struct stream *next;
};

enum { NON_BLOCKING = 1, LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

extern struct stream *streams; /* all of them */

CUresult stream_of(handle handle, struct stream **stream);
struct stream *stream_new(struct context *context, unsigned flags, int priority);
void stream_free(struct stream *stream);
void stream_forget_context(struct context *context);
bool stream_is_done(const struct stream *stream);

/* Carry out `work` (may be null), or a plan, on the stream, after what it holds already and `after`. */
struct plan;
void plan_run(struct plan *plan);
void plan_release(struct plan *plan);
struct marker *submit(struct stream *stream, const struct work *work, struct plan *plan,
    struct marker *after);
void marker_wait(struct marker *marker);
struct marker *marker_keep(struct marker *marker);
void marker_release(struct marker *marker);

/* ---- capture ------------------------------------------------------------------------------------- */

enum capture_status { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_BROKEN, CAPTURE_OVER };
enum capture_mode { GLOBAL, THREAD_LOCAL, RELAXED };

struct capture {
    int references;
    unsigned long long id, thread;
    enum capture_mode mode;
    enum capture_status status;
    struct stream *origin;
    struct graph *graph;
    struct capture *next;
};

size_t captures_live(void);
void capture_break(struct capture *capture);
void capture_release(struct capture *capture);
void capture_end(struct capture *capture);          /* takes its streams out of it; keeps the graph */
bool capture_forbids(void); /* a potentially unsafe call, made by this thread: breaks what forbids it */
bool capture_implied(const struct context *context); /* by work on the legacy stream; breaks it */
bool capture_break_all(const struct context *context);

/* Do, or record, work on a stream. */
CUresult enqueue(handle stream, const struct work *work);

/* ---- memory -------------------------------------------------------------------------------------- */

size_t allocations_live(void);
void allocations_forget_context(const struct context *context);
void allocation_keep(struct allocation *allocation); /* goes when nobody keeps it and it is not alive */
void allocation_release(struct allocation *allocation);
void allocation_map(struct allocation *allocation, bool mapped); /* by an executable that was launched */
size_t allocations_mapped(int device);
void graph_memory_used(int device); /* more than before, perhaps */
bool allocation_can_live(struct allocation *allocation, bool freed_first);
void allocation_live(struct allocation *allocation, bool alive);

#endif
