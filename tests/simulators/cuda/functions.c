/* Every call's way in and out, and how functions are found by name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

_Thread_local CUresult verdict;
pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;
int driver_devices;

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static bool initialised, forked;
static struct function *functions;

void driver_lock(void) { pthread_mutex_lock(&driver_mutex); }
void driver_unlock(void) { pthread_mutex_unlock(&driver_mutex); }
void driver_wait(void) { pthread_cond_wait(&progress, &driver_mutex); }
void driver_progress(void) { pthread_cond_broadcast(&progress); }

bool driver_forked(void) { return forked; }

static void in_child(void) {
    forked = initialised;
    driver_unlock();
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(driver_lock, driver_unlock, in_child);
}

void function_add(struct function *function) {
    fault_point_add(&function->point);
    function->next = functions;
    functions = function;
}

bool call_begin(struct function *function, struct call *call) {
    *call = (struct call){.code = NOT_INITIALIZED};
    int injected = fault_meet(&function->point, &call->after); /* in a forked child, calls are counted too */
    if (forked && !(function->flags & EARLY)) return false;
    call->code = call->injected = injected;
    if (call->injected && !call->after && !(function->flags & CONCLUDES)) return false;
    driver_lock();
    call->locked = true;
    call->code = NOT_INITIALIZED;
    verdict = call->injected;
    return initialised || (function->flags & EARLY);
}

CUresult call_end(struct call *call) {
    if (call->locked) driver_unlock();
    return call->injected ? call->injected : call->code;
}

static int from_environment(const char *name, int otherwise) {
    const char *value = getenv(name);
    return value && *value ? atoi(value) : otherwise;
}

API(1, EARLY, cuInit, 2000, cuInit, unsigned, flags) {
    if (forked) return NOT_INITIALIZED;
    if (flags) return INVALID_VALUE;
    driver_devices = from_environment("SOFTWARE_CUDA_DEVICES", 2);
    if (driver_devices == 0) return NO_DEVICE;
    initialised = true;
    return SUCCESS;
}

static int version(void) { return from_environment("SOFTWARE_CUDA_VERSION", 13000); }

API(1, EARLY, cuDriverGetVersion, 2020, cuDriverGetVersion, int *, answer) {
    *answer = version();
    return SUCCESS;
}

/* ---- functions that this driver doesn't have ----------------------------------------------------- */

enum { MOST_UNKNOWN = 1024 };

static char *unknown_names[MOST_UNKNOWN];
static unsigned unknown_count;
static unsigned long long unknown_calls;

/* Note the name in the file that SOFTWARE_CUDA_UNKNOWN names, if any,
    at once: the process may not end well. */
void count_unknown(const char *name) {
    unknown_calls++;
    const char *path = getenv("SOFTWARE_CUDA_UNKNOWN");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    dprintf(file, "%s\n", name);
    close(file);
}

static int unknown(unsigned number) {
    driver_lock();
    count_unknown(unknown_names[number]);
    driver_unlock();
    return NOT_SUPPORTED;
}

/* STUBS(m): m(0x000) m(0x001) ... m(0x3ff) */
#define SIXTEEN(m, n) m(n##0) m(n##1) m(n##2) m(n##3) m(n##4) m(n##5) m(n##6) m(n##7) \
                      m(n##8) m(n##9) m(n##a) m(n##b) m(n##c) m(n##d) m(n##e) m(n##f)
#define ROW(m, n) SIXTEEN(m, n)
#define BLOCK(m, n) \
    ROW(m, n##0) ROW(m, n##1) ROW(m, n##2) ROW(m, n##3) ROW(m, n##4) ROW(m, n##5) ROW(m, n##6) ROW(m, n##7) \
    ROW(m, n##8) ROW(m, n##9) ROW(m, n##a) ROW(m, n##b) ROW(m, n##c) ROW(m, n##d) ROW(m, n##e) ROW(m, n##f)
#define STUBS(m) BLOCK(m, 0x0) BLOCK(m, 0x1) BLOCK(m, 0x2) BLOCK(m, 0x3)

#define DEFINE(n) static int unknown_##n(void) { return unknown(n); }
#define NAME(n) unknown_##n,
STUBS(DEFINE)
static int (*const unknown_functions[MOST_UNKNOWN])(void) = {STUBS(NAME)};

static void *unknown_function(const char *name) {
    unsigned number = 0;
    while (number < unknown_count && strcmp(unknown_names[number], name)) number++;
    if (number == MOST_UNKNOWN) return NULL;
    if (number == unknown_count) unknown_names[unknown_count++] = strdup(name);
    return (void *)unknown_functions[number];
}

/* How often functions and kernels were called that this driver doesn't have. */
EXPORT unsigned long long driver_unknown_calls(void) {
    driver_lock();
    unsigned long long answer = unknown_calls;
    driver_unlock();
    return answer;
}

/* ---- by name ------------------------------------------------------------------------------------- */

/* The newest signature of the name that the caller's version of CUDA knows. */
API(5, EARLY, cuGetProcAddress, 12000, cuGetProcAddress_v2, const char *, name, void **, address, int, asked,
    uint64_t, flags, int *, status) {
    struct function *found = NULL;
    *address = NULL;
    if (asked <= version())
        for (struct function *each = functions; each; each = each->next)
            if ((!strcmp(each->point.name, name) || !strcmp(each->symbol, name)) && each->since <= asked &&
                (!found || each->since > found->since))
                found = each;
    if (found)
        *address = found->address;
    else if (asked <= version())
        *address = unknown_function(name);
    if (status) *status = *address ? 0 : asked > version() ? 2 : 1;
    return *address ? SUCCESS : NOT_FOUND;
}
