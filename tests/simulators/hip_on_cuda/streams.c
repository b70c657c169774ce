/* Streams, events and stream capture. */
#include "shim.h"

EXPORT hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority) {
    return FORWARD(cuStreamCreateWithPriority, stream, flags, priority);
}

EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
    return FORWARD(cuStreamCreate, stream, flags);
}

EXPORT hipError_t hipStreamDestroy(hipStream_t stream) { return FORWARD(cuStreamDestroy, stream); }

EXPORT hipError_t hipStreamSynchronize(hipStream_t stream) { return FORWARD(cuStreamSynchronize, stream); }

EXPORT hipError_t hipStreamQuery(hipStream_t stream) { return FORWARD(cuStreamQuery, stream); }

EXPORT hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
    return FORWARD(cuStreamWaitEvent, stream, event, flags);
}

/* Not by cuStreamGetDevice, which breaks a capture of the stream. */
EXPORT hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device) {
    CUcontext context, before;
    REFUSE_IF(!device, hipErrorInvalidValue);
    TRY(driver_enter());
    if (!stream || stream == hipStreamLegacy || stream == hipStreamPerThread) {
        *device = driver_device();
        return answer_hip(hipSuccess);
    }
    TRY(cuda.cuStreamGetCtx(stream, &context) ?: cuda.cuCtxGetCurrent(&before));
    TRY(cuda.cuCtxSetCurrent(context));
    CUresult code = cuda.cuCtxGetDevice(device);
    TRY(cuda.cuCtxSetCurrent(before));
    return answer(code);
}

/* ---- events -------------------------------------------------------------------------------------- */

/* HIP has flags of its own that say which caches a release reaches. */
EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
    return FORWARD(cuEventCreate, event, flags & 0x0fffffff);
}

EXPORT hipError_t hipEventDestroy(hipEvent_t event) { return FORWARD(cuEventDestroy, event); }

EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    return FORWARD(cuEventRecord, event, stream);
}

EXPORT hipError_t hipEventQuery(hipEvent_t event) { return FORWARD(cuEventQuery, event); }

EXPORT hipError_t hipEventSynchronize(hipEvent_t event) { return FORWARD(cuEventSynchronize, event); }

EXPORT hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t end) {
    float passed;
    REFUSE_IF(!milliseconds, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuEventElapsedTime(&passed, start, end));
    *milliseconds = passed;
    return answer_hip(hipSuccess);
}

/* ---- capture ------------------------------------------------------------------------------------- */

EXPORT hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    return FORWARD(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

EXPORT hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
    return FORWARD(cuStreamEndCapture, stream, graph);
}

EXPORT hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
    CUstreamCaptureStatus found;
    REFUSE_IF(!status, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuStreamIsCapturing(stream, &found));
    *status = (hipStreamCaptureStatus)found;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status,
    unsigned long long *id, hipGraph_t *graph, const hipGraphNode_t **nodes, size_t *count) {
    CUstreamCaptureStatus found;
    cuuint64_t number = 0;
    REFUSE_IF(!status, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuStreamGetCaptureInfo(stream, &found, &number, graph, nodes, NULL, count));
    *status = (hipStreamCaptureStatus)found;
    if (id) *id = number;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipStreamUpdateCaptureDependencies(
    hipStream_t stream, hipGraphNode_t *nodes, size_t count, unsigned flags) {
    return FORWARD(cuStreamUpdateCaptureDependencies, stream, nodes, NULL, count, flags);
}

EXPORT hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
    return FORWARD(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}
