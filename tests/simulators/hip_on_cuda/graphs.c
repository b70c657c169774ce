/* Graphs, their nodes, and executables. */
#include "shim.h"

EXPORT hipError_t hipGraphDestroy(hipGraph_t graph) { return FORWARD(cuGraphDestroy, graph); }

EXPORT hipError_t hipGraphDebugDotPrint(hipGraph_t graph, const char *path, unsigned flags) {
    return FORWARD(cuGraphDebugDotPrint, graph, path, flags);
}

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

EXPORT hipError_t hipGraphAddEmptyNode(
    hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes, size_t count) {
    return FORWARD(cuGraphAddEmptyNode, node, graph, nodes, count);
}

EXPORT hipError_t hipGraphRemoveDependencies(
    hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to, size_t count) {
    return FORWARD(cuGraphRemoveDependencies, graph, from, to, NULL, count);
}

EXPORT hipError_t hipGraphAddEventRecordNode(hipGraphNode_t *node, hipGraph_t graph,
    const hipGraphNode_t *nodes, size_t count, hipEvent_t event) {
    return FORWARD(cuGraphAddEventRecordNode, node, graph, nodes, count, event);
}

EXPORT hipError_t hipGraphAddEventWaitNode(hipGraphNode_t *node, hipGraph_t graph,
    const hipGraphNode_t *nodes, size_t count, hipEvent_t event) {
    return FORWARD(cuGraphAddEventWaitNode, node, graph, nodes, count, event);
}

EXPORT hipError_t hipGraphAddChildGraphNode(hipGraphNode_t *node, hipGraph_t graph,
    const hipGraphNode_t *nodes, size_t count, hipGraph_t child) {
    return FORWARD(cuGraphAddChildGraphNode, node, graph, nodes, count, child);
}

EXPORT hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t *child) {
    return FORWARD(cuGraphChildGraphNodeGetGraph, node, child);
}

EXPORT hipError_t hipGraphClone(hipGraph_t *clone, hipGraph_t graph) {
    return FORWARD(cuGraphClone, clone, graph);
}

EXPORT hipError_t hipGraphNodeFindInClone(hipGraphNode_t *node, hipGraphNode_t original, hipGraph_t clone) {
    return FORWARD(cuGraphNodeFindInClone, node, original, clone);
}

EXPORT hipError_t hipGraphDestroyNode(hipGraphNode_t node) { return FORWARD(cuGraphDestroyNode, node); }

EXPORT hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type) {
    CUgraphNodeType found;
    REFUSE_IF(!type, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuGraphNodeGetType(node, &found));
    REFUSE_IF(found > CU_GRAPH_NODE_TYPE_MEM_FREE, hipErrorNotSupported); /* such as conditional nodes */
    *type = (hipGraphNodeType)found;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams *found) {
    CUDA_KERNEL_NODE_PARAMS theirs = {0};
    REFUSE_IF(!found, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuGraphKernelNodeGetParams(node, &theirs));
    if (!theirs.func && theirs.kern) TRY(cuda.cuKernelGetFunction(&theirs.func, theirs.kern));
    *found = (hipKernelNodeParams){
        .blockDim = {theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ},
        .extra = theirs.extra,
        .func = theirs.func,
        .gridDim = {theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ},
        .kernelParams = theirs.kernelParams,
        .sharedMemBytes = theirs.sharedMemBytes,
    };
    return answer_hip(hipSuccess);
}

/* ---- executables --------------------------------------------------------------------------------- */

/* CUDA takes more flags; AMD's runtime doesn't, so neither does the shim. */
EXPORT hipError_t hipGraphInstantiateWithFlags(
    hipGraphExec_t *executable, hipGraph_t graph, unsigned long long flags) {
    const unsigned known = hipGraphInstantiateFlagAutoFreeOnLaunch | hipGraphInstantiateFlagUseNodePriority;
    REFUSE_IF(flags & ~(unsigned long long)known, hipErrorInvalidValue);
    return FORWARD(cuGraphInstantiateWithFlags, executable, graph, flags);
}

EXPORT hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
    return FORWARD(cuGraphLaunch, executable, stream);
}

EXPORT hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream) {
    return FORWARD(cuGraphUpload, executable, stream);
}

/* The numbers of the results are CUDA's. */
EXPORT hipError_t hipGraphExecUpdate(
    hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t *node, int *result) {
    CUgraphExecUpdateResultInfo info = {0};
    CUresult code = driver_enter() ?: cuda.cuGraphExecUpdate(executable, graph, &info);
    if (node) *node = info.errorNode;
    if (result) *result = (int)info.result;
    return answer(code);
}

EXPORT hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
    return FORWARD(cuGraphExecDestroy, executable);
}
