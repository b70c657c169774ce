/* Primary contexts, contexts of one's own, and each thread's stack of them. */
#include <stdlib.h>

#include "streams.h"

enum { DEEPEST = 64 };

static struct context *primaries[MOST_DEVICES];
static _Thread_local handle stack[DEEPEST];
static _Thread_local int depth;

unsigned long long thread_number(void) {
    static unsigned long long last;
    static _Thread_local unsigned long long mine;
    if (!mine) mine = ++last;
    return mine;
}

CUresult context_current(struct context **context) {
    if (!depth) return INVALID_CONTEXT;
    if (!handle_is(stack[depth - 1], CONTEXT)) return CONTEXT_IS_DESTROYED;
    *context = handle_get(stack[depth - 1], CONTEXT);
    return SUCCESS;
}

void context_idle(handle which) {
    while (handle_is(which, CONTEXT) && ((struct context *)handle_get(which, CONTEXT))->pending) driver_wait();
}

static struct context *new(int device, bool primary) {
    static unsigned long long last;
    struct context *context = calloc(1, sizeof *context);
    context->id = ++last;
    context->device = device;
    context->primary = primary;
    context->handle = handle_new(CONTEXT, context);
    context->legacy = stream_new(context, 0, 0);
    context->legacy->legacy = true;
    return context;
}

/* The handle goes first: nothing can begin in the context while what it holds is carried out. */
static void destroy(struct context *context) {
    handle_drop(context->handle);
    stream_forget_context(context);
    driver_progress();
    while (context->pending) driver_wait();
    allocations_forget_context(context);
    free(context);
}

/* ---- primary contexts -------------------------------------------------------------------------- */

API(2, 0, cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, handle *, context, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (!primaries[device]) primaries[device] = new(device, true);
    primaries[device]->retained++;
    *context = primaries[device]->handle;
    return SUCCESS;
}

API(1, 0, cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    struct context *context = primaries[device];
    if (!context) return INVALID_CONTEXT;
    if (--context->retained == 0) {
        primaries[device] = NULL;
        destroy(context);
    }
    return SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------------ */

static CUresult create(handle *answer, int device) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (depth == DEEPEST) return OUT_OF_MEMORY;
    *answer = stack[depth++] = new(device, false)->handle;
    return SUCCESS;
}

API(3, 0, cuCtxCreate, 3020, cuCtxCreate_v2, handle *, context, unsigned, flags, int, device) {
    return create(context, device);
}

API(4, 0, cuCtxCreate, 12050, cuCtxCreate_v4, handle *, context, void *, parameters, unsigned, flags,
    int, device) {
    return create(context, device);
}

API(1, 0, cuCtxDestroy, 4000, cuCtxDestroy_v2, handle, which) {
    struct context *context = handle_get(which, CONTEXT);
    if (!context || context->primary) return INVALID_CONTEXT;
    if (depth && stack[depth - 1] == which) depth--;
    destroy(context);
    return SUCCESS;
}

API(1, 0, cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, handle, context) {
    if (!handle_get(context, CONTEXT)) return INVALID_CONTEXT;
    if (depth == DEEPEST) return OUT_OF_MEMORY;
    stack[depth++] = context;
    return SUCCESS;
}

API(1, 0, cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, handle *, context) {
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return SUCCESS;
}

API(1, 0, cuCtxGetCurrent, 4000, cuCtxGetCurrent, handle *, context) {
    *context = depth ? stack[depth - 1] : 0;
    return SUCCESS;
}

API(1, 0, cuCtxSetCurrent, 4000, cuCtxSetCurrent, handle, context) {
    if (!context) {
        if (depth) depth--;
        return SUCCESS;
    }
    if (!handle_get(context, CONTEXT)) return INVALID_CONTEXT;
    if (!depth) depth = 1;
    stack[depth - 1] = context;
    return SUCCESS;
}

API(2, 0, cuCtxGetId, 12000, cuCtxGetId, handle, which, unsigned long long *, id) {
    struct context *context = handle_get(which, CONTEXT);
    if (!which) TRY(context_current(&context));
    if (!context) return CONTEXT_IS_DESTROYED;
    *id = context->id;
    return SUCCESS;
}

API(1, 0, cuCtxGetDevice, 2000, cuCtxGetDevice, int *, device) {
    struct context *context;
    TRY(context_current(&context));
    *device = context->device;
    return SUCCESS;
}

API(2, 0, cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, int *, least, int *, greatest) {
    struct context *context;
    TRY(context_current(&context));
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

static CUresult synchronize(struct context *context) {
    if (capture_break_all(context)) return CAPTURE_UNSUPPORTED;
    context_idle(context->handle);
    return SUCCESS;
}

API(1, 0, cuCtxSynchronize, 13000, cuCtxSynchronize_v2, handle, which) {
    struct context *context = handle_get(which, CONTEXT);
    return context ? synchronize(context) : INVALID_CONTEXT;
}

API(0, 0, cuCtxSynchronize, 2000, cuCtxSynchronize) {
    struct context *context;
    TRY(context_current(&context));
    return synchronize(context);
}
