/* A CUDA driver in software, for tests: handles, the lock and contexts.
 *
 * Handles are numbers that are never used twice, so that a stale one is always noticed. */
#ifndef DRIVER_H
#define DRIVER_H

#include <pthread.h>

#include "api.h"

enum { MOST_DEVICES = 16 };

/* ---- handles ------------------------------------------------------------------------------------- */

enum kind { CONTEXT, STREAM, EVENT, GRAPH, NODE, EXECUTABLE, MODULE, FUNCTION, KERNEL, LIBRARY, POOL,
    KINDS };

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
    unsigned long long id; /* never used twice */
    int device;
    bool primary;
    int retained;
    size_t pending; /* operations that have been submitted and are not done */
    struct stream *legacy;
};

CUresult context_current(struct context **context); /* 201 without one */
void context_idle(handle context);                  /* wait until nothing is pending, or it is destroyed */
unsigned long long thread_number(void);             /* of this thread; never used twice */
bool is_device(int device);

#endif
