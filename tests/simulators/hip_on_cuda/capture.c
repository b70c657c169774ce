/* Stream capture. */
#include "shim.h"

EXPORT hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
    return FORWARD(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

EXPORT hipError_t hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph,
    const hipGraphNode_t *nodes, const hipGraphEdgeData *edges, size_t count, hipStreamCaptureMode mode) {
    return FORWARD(
        cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count, (CUstreamCaptureMode)mode);
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

EXPORT hipError_t hipStreamGetCaptureInfo(
    hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id) {
    return hipStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

EXPORT hipError_t hipStreamUpdateCaptureDependencies(
    hipStream_t stream, hipGraphNode_t *nodes, size_t count, unsigned flags) {
    return FORWARD(cuStreamUpdateCaptureDependencies, stream, nodes, NULL, count, flags);
}

EXPORT hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
    return FORWARD(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}
