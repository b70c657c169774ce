/* Graphs and executables. */
#include <stdbool.h>

#include "shim.h"

EXPORT hipError_t hipGraphCreate(hipGraph_t *graph, unsigned flags) {
    return FORWARD(cuGraphCreate, graph, flags);
}

EXPORT hipError_t hipGraphDestroy(hipGraph_t graph) { return FORWARD(cuGraphDestroy, graph); }

EXPORT hipError_t hipGraphClone(hipGraph_t *clone, hipGraph_t graph) {
    return FORWARD(cuGraphClone, clone, graph);
}

EXPORT hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char *path, unsigned flags) {
    return FORWARD(cuGraphDebugDotPrint, graph, path, flags);
}

/* ---- what is in a graph -------------------------------------------------------------------------- */

EXPORT hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
    return FORWARD(cuGraphGetNodes, graph, nodes, count);
}

EXPORT hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
    return FORWARD(cuGraphGetRootNodes, graph, nodes, count);
}

EXPORT hipError_t hipGraphGetEdges(
    hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to, size_t *count) {
    return FORWARD(cuGraphGetEdges, graph, from, to, NULL, count);
}

EXPORT hipError_t hipGraphAddDependencies(
    hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count) {
    return FORWARD(cuGraphAddDependencies, graph, from, to, NULL, count);
}

EXPORT hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *nodes, size_t *count) {
    return FORWARD(cuGraphNodeGetDependencies, node, nodes, NULL, count);
}

EXPORT hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t *nodes, size_t *count) {
    return FORWARD(cuGraphNodeGetDependentNodes, node, nodes, NULL, count);
}

/* ---- executables --------------------------------------------------------------------------------- */

/* CUDA takes more; AMD's runtime doesn't, so neither does the shim. */
static bool are_flags(unsigned long long flags) {
    return !(flags & ~(hipGraphInstantiateFlagAutoFreeOnLaunch | hipGraphInstantiateFlagUseNodePriority));
}

EXPORT hipError_t hipGraphInstantiateWithFlags(
    hipGraphExec_t *executable, hipGraph_t graph, unsigned long long flags) {
    REFUSE_IF(!are_flags(flags), hipErrorInvalidValue);
    return FORWARD(cuGraphInstantiateWithFlags, executable, graph, flags);
}

EXPORT hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph,
    UNUSED hipGraphNode_t *culprit, UNUSED char *log, UNUSED size_t nbytes) {
    return FORWARD(cuGraphInstantiateWithFlags, executable, graph, 0);
}

EXPORT hipError_t hipGraphInstantiateWithParams(
    hipGraphExec_t *executable, hipGraph_t graph, hipGraphInstantiateParams *parameters) {
    REFUSE_IF(!parameters || !are_flags(parameters->flags), hipErrorInvalidValue);
    CUDA_GRAPH_INSTANTIATE_PARAMS translated = {
        .flags = parameters->flags, .hUploadStream = parameters->uploadStream};
    CUresult code = driver_enter() ?: cuda.cuGraphInstantiateWithParams(executable, graph, &translated);
    parameters->errNode_out = translated.hErrNode_out;
    parameters->result_out = translated.result_out > CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED
                                 ? hipGraphInstantiateError
                                 : (hipGraphInstantiateResult)translated.result_out;
    return answer(code);
}

EXPORT hipError_t hipGraphExecGetFlags(hipGraphExec_t executable, unsigned long long *flags) {
    cuuint64_t found;
    TRY(driver_enter() ?: cuda.cuGraphExecGetFlags(executable, &found));
    *flags = found;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGraphExecUpdate(hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t *culprit,
    hipGraphExecUpdateResult *result) {
    CUgraphExecUpdateResultInfo found = {0};
    REFUSE_IF(!culprit || !result, hipErrorInvalidValue);
    CUresult code = driver_enter() ?: cuda.cuGraphExecUpdate(executable, graph, &found);
    *culprit = found.errorNode;
    *result = (int)found.result > hipGraphExecUpdateErrorUnsupportedFunctionChange
                  ? hipGraphExecUpdateError
                  : (hipGraphExecUpdateResult)found.result;
    return answer(code);
}

EXPORT hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
    return FORWARD(cuGraphLaunch, executable, stream);
}

EXPORT hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream) {
    return FORWARD(cuGraphUpload, executable, stream);
}

EXPORT hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
    return FORWARD(cuGraphExecDestroy, executable);
}
