/* Work, and the streams that do it or record it. */
#ifndef STREAMS_H
#define STREAMS_H

#include "memory.h"

/* ---- work: what a stream does and what a node stands for ----------------------------------------- */

/* The numbers of the node types in the API. */
enum work_kind { WORK_KERNEL = 0, WORK_COPY = 1, WORK_FILL = 2, WORK_HOST = 3, WORK_CHILD = 4,
    WORK_EMPTY = 5, WORK_WAIT = 6, WORK_EVENT = 7, WORK_ALLOC = 10, WORK_FREE = 11, WORK_CONDITIONAL = 13,
    WORK_CALLBACK = 100, /* these are of no node */ WORK_BODY = 101, WORK_BODY_END = 102 };

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
typedef void (*callback)(handle stream, CUresult code, void *data);

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
    callback callback;
    handle stream; /* of a callback */
    handle event;  /* that is recorded, or waited for */
    void *data;
    struct allocation *memory;
    handle function; /* of a kernel: a function's or a kernel's handle, whichever was launched */
    const struct native *native;
    bool in_block; /* its parameters were given in one block of memory */
    struct geometry geometry;
    uint64_t condition; /* of a conditional node and its bodies; of these also: */
    int type;
    unsigned branch;
    size_t jump; /* where the plan goes on, if the body is not run, or to test it again */
    _Alignas(16) unsigned char parameters[MOST_PARAMETER_BYTES];
};

void work_run(const struct work *work);
void work_parameters(const struct work *work, void **found); /* of a kernel: where each one is */
const struct native *native_find(const char *name);

/* ---- streams ------------------------------------------------------------------------------------- */

struct marker { /* the end of an operation */
    int references;
    bool done;
    uint64_t time; /* when it was done, in nanoseconds */
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
CUresult stream_not_capturing(handle handle, struct stream **stream); /* asking breaks the capture */
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
void marker_reach(struct marker *marker);
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
    bool lent; /* the graph was there before */
    struct capture *next;
};

size_t captures_live(void);
void capture_break(struct capture *capture);
void capture_release(struct capture *capture);
/* Takes its streams out of it. Its graph goes too, unless it is kept. */
void capture_end(struct capture *capture, bool keep);
bool capture_forbids(void); /* a potentially unsafe call, made by this thread: breaks what forbids it */
bool capture_implied(const struct context *context); /* by work on the legacy stream; breaks it */
bool capture_break_all(const struct context *context);

/* Do, or record, work on a stream. */
CUresult enqueue(handle stream, const struct work *work);

/* ---- events that nodes record -------------------------------------------------------------------- */

bool event_known(handle event);
void event_expect(handle event); /* a run that records it was launched */
void event_expect_wait(handle event); /* or one that waits for it */
void event_wait(handle event);
void event_reach(handle event);

#endif
