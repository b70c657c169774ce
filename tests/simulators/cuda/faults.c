#define _GNU_SOURCE
#include "faults.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_FAULTS = 64, LONGEST_NAME = 64 };

struct fault {
    char function[LONGEST_NAME]; /* empty: any */
    unsigned long long before;   /* how many calls are still to go well */
    unsigned long long times;    /* how many fail then */
    int code;
    bool after;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fault_point *points;
static struct fault faults[MOST_FAULTS];
static unsigned fault_count;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, unlock); }

void fault_point_add(struct fault_point *point) {
    lock();
    point->next = points;
    points = point;
    unlock();
}

int fault_meet(struct fault_point *point, bool *after) {
    int code = 0;
    unsigned kept = 0;
    lock();
    point->calls++;
    unsigned delay = point->delay;
    for (unsigned i = 0; i < fault_count; i++) {
        struct fault fault = faults[i];
        if (!*fault.function || !strcmp(fault.function, point->name)) {
            if (fault.before) {
                fault.before--;
            } else if (!code) {
                code = fault.code;
                *after = fault.after;
                fault.times--;
            }
        }
        if (fault.times) faults[kept++] = fault;
    }
    fault_count = kept;
    unlock();
    if (delay) usleep(delay);
    return code;
}

/* ---- what tests call ------------------------------------------------------------------------- */

/* Let the `nth` call from now (1 is the next) of a function fail, and the `times` - 1 after it.
 * A null or empty name means any function. Returns -1 if there is no room. */
EXPORT int fault_fail(const char *function, unsigned long long nth, unsigned long long times, int code,
    int after) {
    int answer = -1;
    lock();
    if (fault_count < MOST_FAULTS && nth && times && (!function || strlen(function) < LONGEST_NAME)) {
        struct fault *fault = &faults[fault_count++];
        *fault = (struct fault){.before = nth - 1, .times = times, .code = code, .after = after};
        if (function) strcpy(fault->function, function);
        answer = 0;
    }
    unlock();
    return answer;
}

/* Let every call of a function wait first. */
EXPORT void fault_delay(const char *function, unsigned microseconds) {
    lock();
    for (struct fault_point *point = points; point; point = point->next)
        if (!strcmp(point->name, function)) point->delay = microseconds;
    unlock();
}

/* How many faults have not (all) happened yet. */
EXPORT unsigned fault_pending(void) {
    lock();
    unsigned count = fault_count;
    unlock();
    return count;
}

/* The name of the function of that number, null after the last one, and how often it was called. */
EXPORT const char *fault_calls(unsigned number, unsigned long long *calls) {
    const char *name = NULL;
    lock();
    for (struct fault_point *point = points; point; point = point->next)
        if (!number--) {
            name = point->name;
            *calls = point->calls;
            break;
        }
    unlock();
    return name;
}

/* Forget faults, delays and numbers of calls. */
EXPORT void fault_reset(void) {
    lock();
    fault_count = 0;
    for (struct fault_point *point = points; point; point = point->next) point->calls = point->delay = 0;
    unlock();
}
