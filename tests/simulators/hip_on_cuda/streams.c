/* Streams and events. */
#include "shim.h"

EXPORT hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned flags, int priority) {
    return FORWARD(cuStreamCreateWithPriority, stream, flags, priority);
}

EXPORT hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
    return FORWARD(cuStreamCreate, stream, flags);
}

EXPORT hipError_t hipStreamCreate(hipStream_t *stream) {
    return FORWARD(cuStreamCreate, stream, hipStreamDefault);
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

EXPORT hipError_t hipStreamGetFlags(hipStream_t stream, unsigned *flags) {
    return FORWARD(cuStreamGetFlags, stream, flags);
}

EXPORT hipError_t hipStreamGetPriority(hipStream_t stream, int *priority) {
    return FORWARD(cuStreamGetPriority, stream, priority);
}

EXPORT hipError_t hipStreamGetId(hipStream_t stream, unsigned long long *id) {
    return FORWARD(cuStreamGetId, stream, id);
}

EXPORT hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *data) {
    return FORWARD(cuLaunchHostFunc, stream, function, data);
}

/* The callback finds CUDA's code where it expects HIP's; they differ in what nobody can do much about. */
EXPORT hipError_t hipStreamAddCallback(
    hipStream_t stream, void (*function)(hipStream_t, hipError_t, void *), void *data, unsigned flags) {
    return FORWARD(cuStreamAddCallback, stream, (CUstreamCallback)(void *)function, data, flags);
}

/* ---- events -------------------------------------------------------------------------------------- */

/* HIP has flags of its own that say which caches a release reaches. */
EXPORT hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) {
    return FORWARD(cuEventCreate, event, flags & 0x0fffffff);
}

EXPORT hipError_t hipEventCreate(hipEvent_t *event) { return FORWARD(cuEventCreate, event, hipEventDefault); }

EXPORT hipError_t hipEventDestroy(hipEvent_t event) { return FORWARD(cuEventDestroy, event); }

EXPORT hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    return FORWARD(cuEventRecord, event, stream);
}

EXPORT hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned flags) {
    return FORWARD(cuEventRecordWithFlags, event, stream, flags);
}

EXPORT hipError_t hipEventQuery(hipEvent_t event) { return FORWARD(cuEventQuery, event); }

EXPORT hipError_t hipEventSynchronize(hipEvent_t event) { return FORWARD(cuEventSynchronize, event); }

EXPORT hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t end) {
    return FORWARD(cuEventElapsedTime, milliseconds, start, end);
}
