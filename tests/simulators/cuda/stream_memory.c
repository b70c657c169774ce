/* Memory in the order of a stream, or of a graph. */
#include "streams.h"

API(3, 0, cuMemAllocAsync, 11020, cuMemAllocAsync, void **, answer, size_t, nbytes, handle, which) {
    struct stream *stream;
    struct allocation *allocation;
    TRY(stream_of(which, &stream));
    if (!stream->capture && capture_forbids()) return CAPTURE_UNSUPPORTED;
    TRY(allocation_new(stream->context, nbytes, ON_DEVICE, &allocation));
    if (stream->capture) {
        allocation->of_graph = true;
        allocation->alive = false;
    }
    struct work work = {.kind = WORK_ALLOC, .memory = allocation, .target = allocation->address,
        .nbytes = nbytes};
    CUresult code = enqueue(which, &work);
    if (code == SUCCESS)
        *answer = allocation->address;
    else
        allocation_end(allocation);
    return code;
}

API(2, 0, cuMemFreeAsync, 11020, cuMemFreeAsync, void *, address, handle, which) {
    struct stream *stream;
    struct allocation *allocation = allocation_at(address);
    TRY(stream_of(which, &stream));
    if (!stream->capture && capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (!allocation || allocation->place != ON_DEVICE) return INVALID_VALUE;
    struct work work = {.kind = WORK_FREE, .target = address, .memory = allocation};
    if (stream->capture) return allocation->of_graph ? enqueue(which, &work) : INVALID_VALUE;
    if (!allocation->alive) return INVALID_VALUE;
    TRY(enqueue(which, &work));
    allocation_keep(allocation); /* until the stream has come so far */
    allocation->alive = false;
    return SUCCESS;
}
