/* Events. */
#include <stdlib.h>

#include "streams.h"

enum { BLOCKING_SYNC = 1, NO_TIMING = 2, INTERPROCESS = 4, EXTERNAL = 1 };

struct mark { /* of a run that was launched and has not come to the node */
    struct marker *marker;
    struct mark *next;
};

struct event {
    handle handle, context;
    struct mark *records, *waits; /* of nodes, the oldest first */
    bool timed;
    struct marker *marker; /* null: never recorded, or recorded in a capture */
    struct capture *capture;
    struct nodes frontier;
};

static void forget(struct event *event) {
    marker_release(event->marker);
    if (event->capture) capture_release(event->capture);
    event->marker = NULL;
    event->capture = NULL;
}

static void add(struct mark **marks, struct marker *marker) {
    while (*marks) marks = &(*marks)->next;
    *marks = calloc(1, sizeof **marks);
    (*marks)->marker = marker;
}

static struct marker *taken(struct mark **marks) {
    struct mark *first = *marks;
    struct marker *marker = first->marker;
    *marks = first->next;
    free(first);
    return marker;
}

API(2, 0, cuEventCreate, 2000, cuEventCreate, handle *, answer, unsigned, flags) {
    struct context *context;
    TRY(context_current(&context));
    if (flags & ~(unsigned)(BLOCKING_SYNC | NO_TIMING | INTERPROCESS)) return INVALID_VALUE;
    if (flags & INTERPROCESS && !(flags & NO_TIMING)) return INVALID_VALUE;
    struct event *event = calloc(1, sizeof *event);
    event->context = context->handle;
    event->timed = !(flags & NO_TIMING);
    *answer = event->handle = handle_new(EVENT, event);
    return SUCCESS;
}

API(1, 0, cuEventDestroy, 4000, cuEventDestroy_v2, handle, which) {
    struct event *event = handle_get(which, EVENT);
    if (!event) return INVALID_HANDLE;
    forget(event);
    while (event->records) marker_release(taken(&event->records));
    while (event->waits) marker_release(taken(&event->waits));
    handle_drop(event->handle);
    nodes_free(&event->frontier);
    free(event);
    return SUCCESS;
}

static CUresult record(handle which, handle on) {
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

/* Only in a capture, whose graph then has a node that records the event. */
static CUresult record_as_node(handle which, handle on) {
    struct event *event = handle_get(which, EVENT);
    struct stream *stream;
    if (!event) return INVALID_HANDLE;
    TRY(stream_of(on, &stream));
    if (event->context != stream->context->handle) return INVALID_HANDLE;
    if (stream->legacy && capture_implied(stream->context)) return CAPTURE_IMPLICIT;
    if (!stream->capture) return ILLEGAL_STATE;
    return enqueue(on, &(struct work){.kind = WORK_EVENT, .event = which});
}

API(2, 0, cuEventRecord, 2000, cuEventRecord, handle, event, handle, stream) { return record(event, stream); }

API(3, 0, cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, handle, event, handle, stream,
    unsigned, flags) {
    if (flags & ~(unsigned)EXTERNAL) return INVALID_VALUE;
    return flags ? record_as_node(event, stream) : record(event, stream);
}

/* An event that a node records is not done from a launch on until the run reaches the node. A node that waits
 * for it waits for what was recorded or launched before its own launch. */

bool event_known(handle which) { return handle_get(which, EVENT); }

void event_expect(handle which) {
    struct event *event = handle_get(which, EVENT);
    if (!event) return;
    forget(event);
    event->marker = calloc(1, sizeof *event->marker);
    event->marker->references = 1;
    add(&event->records, marker_keep(event->marker));
}

void event_expect_wait(handle which) {
    struct event *event = handle_get(which, EVENT);
    if (event) add(&event->waits, marker_keep(event->marker));
}

void event_reach(handle which) {
    driver_lock();
    struct event *event = handle_get(which, EVENT);
    if (event && event->records) {
        struct marker *marker = taken(&event->records);
        marker_reach(marker);
        marker_release(marker);
    }
    driver_unlock();
}

void event_wait(handle which) {
    driver_lock();
    struct event *event = handle_get(which, EVENT);
    if (event && event->waits) {
        struct marker *marker = taken(&event->waits);
        marker_wait(marker);
        marker_release(marker);
    }
    driver_unlock();
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

static CUresult time_of(handle which, uint64_t *nanoseconds) {
    struct event *event = handle_get(which, EVENT);
    if (!event || !event->timed) return INVALID_HANDLE;
    if (event->capture) return INVALID_VALUE;
    if (!event->marker) return INVALID_HANDLE;
    if (!event->marker->done) return NOT_READY;
    *nanoseconds = event->marker->time;
    return SUCCESS;
}

API(3, 0, cuEventElapsedTime, 2000, cuEventElapsedTime, float *, milliseconds, handle, start, handle, end) {
    uint64_t from, to;
    TRY(time_of(start, &from));
    TRY(time_of(end, &to));
    *milliseconds = (float)((double)(int64_t)(to - from) / 1e6);
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
    if (flags & ~(unsigned)EXTERNAL) return INVALID_VALUE;
    TRY(stream_of(which, &stream));
    if (flags) { /* only in a capture, whose graph then has a node that waits for the event */
        if (!stream->capture) return ILLEGAL_STATE;
        return enqueue(which, &(struct work){.kind = WORK_WAIT, .event = for_});
    }
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
