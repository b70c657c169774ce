/* The functions about streams, captures aside. */
#include "streams.h"

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

API(2, 0, cuStreamGetFlags, 5050, cuStreamGetFlags, handle, which, unsigned *, flags) {
    struct stream *stream;
    TRY(stream_not_capturing(which, &stream));
    *flags = stream->flags;
    return SUCCESS;
}

API(2, 0, cuStreamGetId, 12000, cuStreamGetId, handle, which, unsigned long long *, id) {
    struct stream *stream;
    TRY(stream_not_capturing(which, &stream));
    *id = stream->id;
    return SUCCESS;
}

API(2, 0, cuStreamGetDevice, 12080, cuStreamGetDevice, handle, which, int *, device) {
    struct stream *stream;
    TRY(stream_not_capturing(which, &stream));
    *device = stream->context->device;
    return SUCCESS;
}

API(1, 0, cuStreamSynchronize, 2000, cuStreamSynchronize, handle, which) {
    struct stream *stream;
    TRY(stream_not_capturing(which, &stream));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    marker_wait(stream->legacy ? submit(stream, NULL, NULL, NULL) : stream->last);
    return SUCCESS;
}

API(1, 0, cuStreamQuery, 2000, cuStreamQuery, handle, which) {
    struct stream *stream;
    TRY(stream_not_capturing(which, &stream));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    return stream_is_done(stream) ? SUCCESS : NOT_READY;
}
