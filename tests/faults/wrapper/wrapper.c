/* AMD's HIP runtime with faults: stands before the real library, which is a dependency of this one, so that
 * whatever is not defined here is found there. Each function counts its calls, meets its fault, and goes on to
 * the real one. What a program makes and destroys is accounted for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"

#define EXPORT __attribute__((visibility("default")))

/* On x86-64 a pointer or a number of whatever size takes one register or one slot of the stack, so that one
 * type of function stands for all. */
typedef uint64_t word;
enum { MOST = 11, RELAXED = 2, INVALID_HANDLE = 400, PER_THREAD = 2 };
typedef int real_function(word, word, word, word, word, word, word, word, word, word, word);

/* What the arguments are: a handle that is used (s e g x) or made (S E G X: stream, event, graph, executable),
 * what a pointer or an int is written to (P, I), anything else (.). A function that is called ...Destroy takes
 * the life of its first argument. */
struct function {
    struct fault_point point;
    const char *arguments;
    real_function *real;
};

#define FUNCTION(symbol, kinds, parameters, ...)                                                     \
    static struct function symbol##_ = {.point = {.name = #symbol}, .arguments = kinds};             \
    __attribute__((constructor)) static void add_##symbol(void) { fault_point_add(&symbol##_.point); } \
    EXPORT int symbol parameters { return go(&symbol##_, (word[MOST]){__VA_ARGS__}); }

static int go(struct function *function, word *arguments);

#define P1 (word a)
#define P2 (word a, word b)
#define P3 (word a, word b, word c)
#define P4 (word a, word b, word c, word d)
#define P5 (word a, word b, word c, word d, word e)
#define P6 (word a, word b, word c, word d, word e, word f)
#define P11 (word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k)
#define A1 a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A11 A6, g, h, i, j, k

FUNCTION(hipRuntimeGetVersion, "I", P1, A1)
FUNCTION(hipGetDeviceCount, "I", P1, A1)
FUNCTION(hipGetDevice, "I", P1, A1)
FUNCTION(hipSetDevice, ".", P1, A1)
FUNCTION(hipDeviceGetStreamPriorityRange, "II", P2, A2)
FUNCTION(hipStreamCreate, "S", P1, A1)
FUNCTION(hipStreamCreateWithFlags, "S.", P2, A2)
FUNCTION(hipStreamCreateWithPriority, "S..", P3, A3)
FUNCTION(hipStreamDestroy, "s", P1, A1)
FUNCTION(hipStreamGetDevice, ".I", P2, A2) /* is there to find out whether a handle is one */
FUNCTION(hipStreamQuery, "s", P1, A1)
FUNCTION(hipStreamSynchronize, "s", P1, A1)
FUNCTION(hipStreamWaitEvent, "se.", P3, A3)
FUNCTION(hipEventCreateWithFlags, "E.", P2, A2)
FUNCTION(hipEventRecord, "es", P2, A2)
FUNCTION(hipEventQuery, "e", P1, A1)
FUNCTION(hipEventSynchronize, "e", P1, A1)
FUNCTION(hipEventElapsedTime, "Iee", P3, A3)
FUNCTION(hipEventDestroy, "e", P1, A1)
FUNCTION(hipHostMalloc, "P..", P3, A3)
FUNCTION(hipMemsetAsync, "...s", P4, A4)
FUNCTION(hipMemcpyAsync, "....s", P5, A5)
FUNCTION(hipModuleLaunchKernel, "........s..", P11, A11)
FUNCTION(hipStreamBeginCapture, "s.", P2, A2)
FUNCTION(hipStreamEndCapture, "sG", P2, A2)
FUNCTION(hipStreamIsCapturing, "sI", P2, A2)
FUNCTION(hipStreamGetCaptureInfo_v2, "sIPPPP", P6, A6)
FUNCTION(hipStreamUpdateCaptureDependencies, "s...", P4, A4)
FUNCTION(hipThreadExchangeStreamCaptureMode, ".", P1, A1)
FUNCTION(hipGraphDestroy, "g", P1, A1)
FUNCTION(hipGraphGetNodes, "g.P", P3, A3)
FUNCTION(hipGraphGetRootNodes, "g.P", P3, A3)
FUNCTION(hipGraphGetEdges, "g..P", P4, A4)
FUNCTION(hipGraphNodeGetType, ".I", P2, A2)
FUNCTION(hipGraphKernelNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphMemsetNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphMemcpyNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphHostNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphMemAllocNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphMemFreeNodeGetParams, "..", P2, A2)
FUNCTION(hipGraphChildGraphNodeGetGraph, "..", P2, A2)
FUNCTION(hipGraphAddChildGraphNode, "Pg..g", P5, A5)
FUNCTION(hipGraphAddEmptyNode, "Pg..", P4, A4)
FUNCTION(hipGraphAddDependencies, "g...", P4, A4)
FUNCTION(hipGraphRemoveDependencies, "g...", P4, A4)
FUNCTION(hipGraphAddEventRecordNode, "Pg..e", P5, A5)
FUNCTION(hipGraphAddEventWaitNode, "Pg..e", P5, A5)
FUNCTION(hipGraphClone, "Gg", P2, A2)
FUNCTION(hipGraphNodeFindInClone, "P.g", P3, A3)
FUNCTION(hipGraphDestroyNode, ".", P1, A1)
FUNCTION(hipGraphDebugDotPrint, "g..", P3, A3)
FUNCTION(hipGraphInstantiateWithFlags, "Xg.", P3, A3)
FUNCTION(hipGraphUpload, "xs", P2, A2)
FUNCTION(hipGraphExecUpdate, "xgPI", P4, A4)
FUNCTION(hipGraphLaunch, "xs", P2, A2)
FUNCTION(hipGraphExecDestroy, "x", P1, A1)
FUNCTION(hipMemGetInfo, "PP", P2, A2)
FUNCTION(hipMemGetAddressRange, "PP.", P3, A3)
FUNCTION(hipDeviceGetGraphMemAttribute, "..P", P3, A3)
FUNCTION(hipDeviceGraphMemTrim, ".", P1, A1)

static real_function *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(REAL_LIBRARY, RTLD_NOW);
    real_function *found = library ? (real_function *)dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    return found;
}

/* ---- what lives ------------------------------------------------------------------------------ */

struct object {
    word handle;
    char kind; /* as in a function's arguments, in lower case; 0: the place is free */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static size_t object_count;
static uint64_t stale_handles;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, unlock); }

static struct object *find(char kind, word handle) {
    for (size_t i = 0; i < object_count; i++)
        if (objects[i].kind == kind && objects[i].handle == handle) return &objects[i];
    return NULL;
}

static void add(char kind, word handle) {
    struct object *place = find(0, 0);
    if (!place) {
        objects = realloc(objects, ++object_count * sizeof *objects);
        place = &objects[object_count - 1];
    }
    *place = (struct object){.handle = handle, .kind = kind};
}

/* Whether a graph is that of a capture, which belongs to the runtime until the capture ends. */
static bool is_captured(word graph) {
    for (size_t i = 0; i <= object_count; i++) {
        if (i < object_count && objects[i].kind != 's') continue;
        word stream = i < object_count ? objects[i].handle : PER_THREAD, number = 0, found = 0;
        int status = 0;
        int answer = real("hipStreamGetCaptureInfo_v2")(
            stream, (word)&status, (word)&number, (word)&found, 0, 0, 0, 0, 0, 0, 0);
        if (!answer && status && found == graph) return true;
    }
    return false;
}

static bool is_stale(char kind, word handle) {
    if (!strchr("segx", kind) || (kind == 's' && handle <= PER_THREAD)) return false;
    lock();
    bool stale = !find(kind, handle) && !(kind == 'g' && is_captured(handle));
    stale_handles += stale;
    unlock();
    return stale;
}

static char destroyed_by(struct function *function) {
    size_t length = strlen(function->point.name);
    bool destroys = length > 7 && !strcmp(function->point.name + length - 7, "Destroy");
    return destroys ? *function->arguments : 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static __thread int last_error;

static const char *const made = "SEGX";

static void account_made(struct function *function, const word *arguments) {
    lock();
    for (size_t i = 0; function->arguments[i]; i++)
        if (strchr(made, function->arguments[i])) add(function->arguments[i] | 0x20, *(word *)arguments[i]);
    unlock();
}

static void account_destroyed(char kind, word handle) {
    lock();
    struct object *object = find(kind, handle);
    if (object) *object = (struct object){0};
    unlock();
}

/* A function that fails after its work takes back what it has made. */
static void take_back(struct function *function, const word *arguments) {
    static const char *const destroyers[] = {"hipStreamDestroy", "hipEventDestroy", "hipGraphDestroy",
        "hipGraphExecDestroy"};
    for (size_t i = 0; function->arguments[i]; i++) {
        const char *kind = strchr(made, function->arguments[i]);
        if (kind) real(destroyers[kind - made])(*(word *)arguments[i], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    }
}

/* As the real runtime does when it fails. */
static void leave_rubbish(struct function *function, const word *arguments) {
    for (size_t i = 0; function->arguments[i]; i++) {
        if (!arguments[i]) continue;
        if (strchr("SEGXP", function->arguments[i])) *(word *)arguments[i] = 0xdeadbeefdeadbeef;
        if (function->arguments[i] == 'I') *(uint32_t *)arguments[i] = 0xdeadbeef;
    }
}

static int go(struct function *function, word *a) {
    bool after = false;
    int code = fault_meet(&function->point, &after);
    if (!code || after) {
        for (size_t i = 0; function->arguments[i]; i++)
            if (is_stale(function->arguments[i], a[i])) return INVALID_HANDLE;
        if (!function->real) function->real = real(function->point.name);
        char destroyed = destroyed_by(function);
        if (destroyed) account_destroyed(destroyed, a[0]); /* before another thread is given the handle anew */
        int answer = function->real(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        if (destroyed && answer) {
            lock();
            add(destroyed, a[0]);
            unlock();
        }
        if (!code) {
            if (!answer) account_made(function, a);
            return answer;
        }
        if (!answer) take_back(function, a);
    }
    last_error = code;
    leave_rubbish(function, a);
    return code;
}

static struct function hipGetLastError_ = {.point = {.name = "hipGetLastError"}, .arguments = ""};

__attribute__((constructor)) static void add_last_error(void) { fault_point_add(&hipGetLastError_.point); }

EXPORT int hipGetLastError(void) {
    int code = last_error;
    int answer = go(&hipGetLastError_, (word[MOST]){0});
    last_error = 0;
    return code ? code : answer;
}

/* ---- what tests call ------------------------------------------------------------------------- */

/* This thread's last error, the real runtime's or one of the faults; it stays. */
EXPORT int faults_last_error(void) {
    return last_error ? last_error : real("hipPeekAtLastError")(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* How often a handle was used or destroyed that was none, or none any more. */
EXPORT uint64_t driver_stale_handles(void) {
    lock();
    uint64_t count = stale_handles;
    unlock();
    return count;
}

/* How many captures there are: of the streams that live, and of this thread's own one. */
static size_t captures(void) {
    size_t count = 0, room = object_count + 1;
    word *known = calloc(room, sizeof *known);
    for (size_t i = 0; i < room; i++) {
        if (i < object_count && objects[i].kind != 's') continue;
        word stream = i < object_count ? objects[i].handle : PER_THREAD, number = 0;
        int status = 0;
        int answer = real("hipStreamGetCaptureInfo_v2")(
            stream, (word)&status, (word)&number, 0, 0, 0, 0, 0, 0, 0, 0);
        if (answer || !status) continue;
        size_t seen = 0;
        while (seen < count && (!number || known[seen] != number)) seen++;
        if (seen == count) known[count++] = number;
    }
    free(known);
    return count;
}

static void end_capture(word stream, bool anew) {
    word status = 0, graph = 0;
    if (real("hipStreamIsCapturing")(stream, (word)&status, 0, 0, 0, 0, 0, 0, 0, 0, 0) || !(int)status) return;
    if (anew) {
        real("hipStreamQuery")(stream, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0); /* invalidates it */
        if (real("hipStreamBeginCapture")(stream, RELAXED, 0, 0, 0, 0, 0, 0, 0, 0, 0)) return;
    }
    if (real("hipStreamEndCapture")(stream, (word)&graph, 0, 0, 0, 0, 0, 0, 0, 0, 0)) return;
    real("hipGraphDestroy")(graph, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* End all captures of the streams that live and of this thread's own one. What stays invalid after that is
 * brought back by another capture. */
EXPORT void faults_end_captures(void) {
    lock();
    for (int anew = 0; anew < 2; anew++) {
        for (size_t i = 0; i < object_count; i++)
            if (objects[i].kind == 's') end_capture(objects[i].handle, anew);
        end_capture(PER_THREAD, anew);
    }
    unlock();
    hipGetLastError();
}

/* The name and the value of the account of that number; null after the last one. What a capture records
 * counts as a graph, too. */
EXPORT const char *driver_account(unsigned number, uint64_t *value) {
    static const char *const names[] = {"streams", "events", "graphs", "executables", "captures"};
    if (number > 4) return NULL;
    lock();
    *value = number == 2 || number == 4 ? captures() : 0;
    for (size_t i = 0; number < 4 && i < object_count; i++) *value += objects[i].kind == "segx"[number];
    unlock();
    return names[number];
}

/* None: the library below the runtime counts them. */
EXPORT uint64_t driver_unknown_calls(void) { return 0; }
