/* The functions about streams and events, captures aside. */
#include <stdlib.h>

#include "driver.h"

struct event {
    handle handle, context;
    struct marker *marker; /* null: never recorded, or recorded in a capture */
    struct capture *capture;
    struct nodes frontier;
};

/* ---- streams ------------------------------------------------------------------------------------- */

API(3, 0, cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, handle *, answer, unsigned, flags,
    int, priority) {
    struct context *context;
    TRY(context_current(&context));
    if (flags & ~(unsigned)NON_BLOCKING) return INVALID_VALUE;
    struct stream *stream = stream_new(context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    *answer = stream->handle = handle_new(STREAM, stream);
    return SUCCESS;
}

API(2, 0, cuStreamCreate, 2000, cuStreamCreate, handle *, answer, unsigned, flags) {
    return cuStreamCreateWithPriority_body(answer, flags, 0);
}

API(1, 0, cuStreamDestroy, 4000, cuStreamDestroy_v2, handle, which) {
    struct stream *stream = handle_get(which, STREAM);
    if (!stream) return INVALID_HANDLE;
    stream_free(stream);
    return SUCCESS;
}

API(2, 0, cuStreamGetCtx, 9020, cuStreamGetCtx, handle, which, handle *, context) {
    struct stream *stream;
    TRY(stream_of(which, &stream));
    *context = stream->context->handle;
    return SUCCESS;
}

API(2, 0, cuStreamGetPriority, 5050, cuStreamGetPriority, handle, which, int *, priority) {
    struct stream *stream;
    TRY(stream_of(which, &stream));
    if (stream->capture && stream->capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    *priority = stream->priority;
    return SUCCESS;
}

/* What can't be asked of a capturing stream: asking breaks the capture, in every mode. */
static CUresult not_in_capture(handle which, struct stream **stream) {
    TRY(stream_of(which, stream));
    if ((*stream)->legacy && capture_implied((*stream)->context)) return CAPTURE_IMPLICIT;
    if (!(*stream)->capture) return SUCCESS;
    capture_break((*stream)->capture);
    return CAPTURE_UNSUPPORTED;
}

API(2, 0, cuStreamGetFlags, 5050, cuStreamGetFlags, handle, which, unsigned *, flags) {
    struct stream *stream;
    TRY(not_in_capture(which, &stream));
    *flags = stream->flags;
    return SUCCESS;
}

API(2, 0, cuStreamGetId, 12000, cuStreamGetId, handle, which, unsigned long long *, id) {
    struct stream *stream;
    TRY(not_in_capture(which, &stream));
    *id = stream->id;
    return SUCCESS;
}

API(2, 0, cuStreamGetDevice, 12080, cuStreamGetDevice, handle, which, int *, device) {
    struct stream *stream;
    TRY(not_in_capture(which, &stream));
    *device = stream->context->device;
    return SUCCESS;
}

API(1, 0, cuStreamSynchronize, 2000, cuStreamSynchronize, handle, which) {
    struct stream *stream;
    TRY(not_in_capture(which, &stream));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    marker_wait(stream->legacy ? submit(stream, NULL, NULL, NULL) : stream->last);
    return SUCCESS;
}

API(1, 0, cuStreamQuery, 2000, cuStreamQuery, handle, which) {
    struct stream *stream;
    TRY(not_in_capture(which, &stream));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    return stream_is_done(stream) ? SUCCESS : NOT_READY;
}

/* ---- events -------------------------------------------------------------------------------------- */

static void forget(struct event *event) {
    marker_release(event->marker);
    if (event->capture) capture_release(event->capture);
    event->marker = NULL;
    event->capture = NULL;
}

API(2, 0, cuEventCreate, 2000, cuEventCreate, handle *, answer, unsigned, flags) {
    struct context *context;
    TRY(context_current(&context));
    struct event *event = calloc(1, sizeof *event);
    event->context = context->handle;
    *answer = event->handle = handle_new(EVENT, event);
    return SUCCESS;
}

API(1, 0, cuEventDestroy, 4000, cuEventDestroy_v2, handle, which) {
    struct event *event = handle_get(which, EVENT);
    if (!event) return INVALID_HANDLE;
    forget(event);
    handle_drop(event->handle);
    nodes_free(&event->frontier);
    free(event);
    return SUCCESS;
}

API(2, 0, cuEventRecord, 2000, cuEventRecord, handle, which, handle, on) {
    struct event *event = handle_get(which, EVENT);
    struct stream *stream;
    if (!event) return INVALID_HANDLE;
    TRY(stream_of(on, &stream));
    if (event->context != stream->context->handle) return INVALID_HANDLE;
    if (stream->legacy && capture_implied(stream->context)) return CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    forget(event);
    if (stream->capture) {
        event->capture = stream->capture;
        event->capture->references++;
        nodes_set(&event->frontier, &stream->frontier);
    } else {
        event->marker = marker_keep(submit(stream, NULL, NULL, NULL));
    }
    return SUCCESS;
}

static CUresult ask(handle which, struct event **event) {
    *event = handle_get(which, EVENT);
    if (!*event) return INVALID_HANDLE;
    struct capture *capture = (*event)->capture;
    if (!capture) return capture_forbids() ? CAPTURE_UNSUPPORTED : SUCCESS;
    if (capture->status != CAPTURE_ACTIVE) return INVALID_VALUE;
    capture_break(capture);
    return CAPTURED_EVENT;
}

API(1, 0, cuEventQuery, 2000, cuEventQuery, handle, which) {
    struct event *event;
    TRY(ask(which, &event));
    return !event->marker || event->marker->done ? SUCCESS : NOT_READY;
}

API(1, 0, cuEventSynchronize, 2000, cuEventSynchronize, handle, which) {
    struct event *event;
    TRY(ask(which, &event));
    marker_wait(event->marker);
    return SUCCESS;
}

/* A stream that waits for an event of a capture joins the capture. */
static CUresult join(struct stream *stream, struct event *event) {
    struct capture *capture = event->capture;
    if (capture->status != CAPTURE_ACTIVE) {
        if (stream->capture) capture_break(stream->capture);
        return INVALID_VALUE;
    }
    if (stream->legacy) {
        capture_break(capture);
        return CAPTURE_IMPLICIT;
    }
    if (stream->capture && stream->capture != capture) {
        capture_break(stream->capture);
        capture_break(capture);
        return CAPTURE_MERGE;
    }
    if (!stream->capture) {
        stream->capture = capture;
        capture->references++;
        stream->frontier.count = 0;
    }
    for (size_t i = 0; i < event->frontier.count; i++)
        if (!nodes_have(&stream->frontier, event->frontier.items[i]))
            nodes_add(&stream->frontier, event->frontier.items[i]);
    return SUCCESS;
}

API(3, 0, cuStreamWaitEvent, 3020, cuStreamWaitEvent, handle, which, handle, for_, unsigned, flags) {
    struct event *event = handle_get(for_, EVENT);
    struct stream *stream;
    if (!event) return INVALID_HANDLE;
    TRY(stream_of(which, &stream));
    if (stream->legacy && capture_implied(stream->context)) return CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    if (event->capture) return join(stream, event);
    if (!event->marker) return SUCCESS; /* never recorded: there is nothing to wait for */
    if (stream->capture) {
        capture_break(stream->capture);
        return CAPTURE_ISOLATION;
    }
    submit(stream, NULL, NULL, event->marker);
    return SUCCESS;
}
