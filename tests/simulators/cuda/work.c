/* Work: fills, copies and host functions are enqueued here, and every kind is carried out. */
#include <string.h>

#include "streams.h"

/* ---- fill and copy ------------------------------------------------------------------------------- */

/* Whether such a fill is possible. */
static bool make_fill(struct work *work, const struct fill *fill) {
    size_t element = fill->element, row = fill->width * element;
    if (element != 1 && element != 2 && element != 4) return false;
    if ((uintptr_t)fill->target % element) return false;
    if (fill->height > 1 && (fill->pitch < row || fill->pitch % element)) return false;
    *work = (struct work){.kind = WORK_FILL, .target = fill->target, .nbytes = row * fill->height, .fill = *fill};
    return true;
}

static void run_fill(const struct fill *fill) {
    for (size_t y = 0; y < fill->height; y++) {
        char *row = (char *)fill->target + y * fill->pitch;
        for (size_t x = 0; x < fill->width && fill->element > 1; x++)
            memcpy(row + x * fill->element, &fill->value, fill->element);
        if (fill->element == 1) memset(row, (int)fill->value, fill->width);
    }
}

static CUresult enqueue_fill(handle stream, const struct fill *fill) {
    struct work work;
    return make_fill(&work, fill) ? enqueue(stream, &work) : INVALID_VALUE;
}

static struct work copy(void *target, const void *source, size_t nbytes) {
    return (struct work){.kind = WORK_COPY, .target = target, .source = (void *)source, .nbytes = nbytes};
}

API(4, 0, cuMemsetD8Async, 3020, cuMemsetD8Async, void *, target, unsigned char, value, size_t, width,
    handle, stream) {
    return enqueue_fill(stream, &(struct fill){target, 0, value, 1, width, 1});
}

API(4, 0, cuMemsetD32Async, 3020, cuMemsetD32Async, void *, target, unsigned, value, size_t, width,
    handle, stream) {
    return enqueue_fill(stream, &(struct fill){target, 0, value, 4, width, 1});
}

API(6, 0, cuMemsetD2D8Async, 3020, cuMemsetD2D8Async, void *, target, size_t, pitch, unsigned char, value,
    size_t, width, size_t, height, handle, stream) {
    return enqueue_fill(stream, &(struct fill){target, pitch, value, 1, width, height});
}

API(4, 0, cuMemcpyAsync, 4000, cuMemcpyAsync, void *, target, const void *, source, size_t, nbytes,
    handle, stream) {
    struct work work = copy(target, source, nbytes);
    return enqueue(stream, &work);
}

API(4, 0, cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, void *, target, const void *, source, size_t, nbytes,
    handle, stream) {
    struct work work = copy(target, source, nbytes);
    return enqueue(stream, &work);
}

API(3, 0, cuMemsetD8, 3020, cuMemsetD8_v2, void *, target, unsigned char, value, size_t, width) {
    return enqueue_fill(LEGACY_STREAM, &(struct fill){target, 0, value, 1, width, 1});
}

static CUresult copy_now(void *target, const void *source, size_t nbytes) {
    struct work work = copy(target, source, nbytes);
    struct stream *legacy;
    TRY(enqueue(LEGACY_STREAM, &work));
    TRY(stream_of(LEGACY_STREAM, &legacy));
    marker_wait(legacy->last);
    return SUCCESS;
}

API(3, 0, cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, void *, target, void *, source, size_t, nbytes) {
    return copy_now(target, source, nbytes);
}

API(3, 0, cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, void *, target, const void *, source, size_t, nbytes) {
    return copy_now(target, source, nbytes);
}

/* ---- host functions, and every kind of work ------------------------------------------------------ */

API(3, 0, cuLaunchHostFunc, 10000, cuLaunchHostFunc, handle, stream, host_function, function, void *, data) {
    struct work work = {.kind = WORK_HOST, .host = function, .data = data};
    return enqueue(stream, &work);
}

/* No capture can hold one. */
API(4, 0, cuStreamAddCallback, 5000, cuStreamAddCallback, handle, which, callback, function, void *, data,
    unsigned, flags) {
    struct stream *stream;
    if (flags || !function) return INVALID_VALUE;
    TRY(stream_not_capturing(which, &stream));
    struct work work = {.kind = WORK_CALLBACK, .callback = function, .stream = which, .data = data};
    submit(stream, &work, NULL, NULL);
    return SUCCESS;
}

void work_parameters(const struct work *work, void **found) {
    size_t offset = 0;
    for (unsigned i = 0; i < work->native->count; i++) {
        found[i] = (void *)(work->parameters + offset);
        offset += (work->native->sizes[i] + 15) / 16 * 16;
    }
}

static void run_kernel(const struct work *work) {
    void *parameters[MOST_PARAMETERS];
    work_parameters(work, parameters);
    work->native->run(&work->geometry, parameters);
}

void work_run(const struct work *work) {
    switch (work->kind) {
        case WORK_KERNEL: run_kernel(work); break;
        case WORK_COPY: memmove(work->target, work->source, work->nbytes); break;
        case WORK_FILL: run_fill(&work->fill); break;
        case WORK_HOST: work->host(work->data); break;
        case WORK_EVENT: event_reach(work->event); break;
        case WORK_WAIT: event_wait(work->event); break;
        case WORK_CALLBACK: work->callback(work->stream, SUCCESS, work->data); break;
        case WORK_ALLOC:
        case WORK_FREE:
        case WORK_CHILD: /* its works follow */
        case WORK_CONDITIONAL:
        case WORK_BODY: /* the plan goes on elsewhere */
        case WORK_BODY_END:
        case WORK_EMPTY: break;
    }
}
