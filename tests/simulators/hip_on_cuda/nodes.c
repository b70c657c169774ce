/* Nodes: made by hand, and looked into. */
#include "shim.h"

EXPORT hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type) {
    CUgraphNodeType found;
    REFUSE_IF(!type, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuGraphNodeGetType(node, &found));
    REFUSE_IF(found > CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, hipErrorNotSupported); /* such as conditional nodes */
    *type = found == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ? hipGraphNodeTypeBatchMemOp : (hipGraphNodeType)found;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGraphDestroyNode(hipGraphNode_t node) { return FORWARD(cuGraphDestroyNode, node); }

/* ---- kernels ------------------------------------------------------------------------------------- */

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

EXPORT hipError_t hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes,
    size_t count, const hipKernelNodeParams *kernel) {
    REFUSE_IF(!kernel || kernel->extra, hipErrorInvalidValue);
    CUDA_KERNEL_NODE_PARAMS theirs = {
        .func = kernel->func,
        .gridDimX = kernel->gridDim.x,
        .gridDimY = kernel->gridDim.y,
        .gridDimZ = kernel->gridDim.z,
        .blockDimX = kernel->blockDim.x,
        .blockDimY = kernel->blockDim.y,
        .blockDimZ = kernel->blockDim.z,
        .sharedMemBytes = kernel->sharedMemBytes,
        .kernelParams = kernel->kernelParams,
    };
    return FORWARD(cuGraphAddKernelNode, node, graph, nodes, count, &theirs);
}

/* ---- fills --------------------------------------------------------------------------------------- */

EXPORT hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams *found) {
    CUDA_MEMSET_NODE_PARAMS theirs = {0};
    REFUSE_IF(!found, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuGraphMemsetNodeGetParams(node, &theirs));
    *found = (hipMemsetParams){
        .dst = POINTER(theirs.dst),
        .elementSize = theirs.elementSize,
        .height = theirs.height,
        .pitch = theirs.pitch,
        .value = theirs.value,
        .width = theirs.width,
    };
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes,
    size_t count, const hipMemsetParams *fill) {
    CUcontext context;
    REFUSE_IF(!fill, hipErrorInvalidValue);
    CUDA_MEMSET_NODE_PARAMS theirs = {
        .dst = ADDRESS(fill->dst),
        .pitch = fill->pitch,
        .value = fill->value,
        .elementSize = fill->elementSize,
        .width = fill->width,
        .height = fill->height,
    };
    TRY(driver_enter() ?: driver_context(driver_device(), &context));
    return answer(cuda.cuGraphAddMemsetNode(node, graph, nodes, count, &theirs, context));
}

/* ---- copies -------------------------------------------------------------------------------------- */

static hipMemcpyKind kind_of(CUmemorytype from, CUmemorytype to) {
    if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED) return hipMemcpyDefault;
    if (from == CU_MEMORYTYPE_HOST)
        return to == CU_MEMORYTYPE_HOST ? hipMemcpyHostToHost : hipMemcpyHostToDevice;
    return to == CU_MEMORYTYPE_HOST ? hipMemcpyDeviceToHost : hipMemcpyDeviceToDevice;
}

EXPORT hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms *found) {
    CUDA_MEMCPY3D theirs = {0};
    REFUSE_IF(!found, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuGraphMemcpyNodeGetParams(node, &theirs));
    void *from =
        theirs.srcMemoryType == CU_MEMORYTYPE_HOST ? (void *)theirs.srcHost : POINTER(theirs.srcDevice);
    void *to = theirs.dstMemoryType == CU_MEMORYTYPE_HOST ? theirs.dstHost : POINTER(theirs.dstDevice);
    *found = (hipMemcpy3DParms){
        .srcArray = theirs.srcArray,
        .srcPos = {theirs.srcXInBytes, theirs.srcY, theirs.srcZ},
        .srcPtr = {from, theirs.srcPitch, theirs.WidthInBytes, theirs.srcHeight},
        .dstArray = theirs.dstArray,
        .dstPos = {theirs.dstXInBytes, theirs.dstY, theirs.dstZ},
        .dstPtr = {to, theirs.dstPitch, theirs.WidthInBytes, theirs.dstHeight},
        .extent = {theirs.WidthInBytes, theirs.Height, theirs.Depth},
        .kind = kind_of(theirs.srcMemoryType, theirs.dstMemoryType),
    };
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes,
    size_t count, void *to, const void *from, size_t nbytes, UNUSED hipMemcpyKind kind) {
    CUcontext context;
    CUDA_MEMCPY3D theirs = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = ADDRESS(from),
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = ADDRESS(to),
        .WidthInBytes = nbytes,
        .Height = 1,
        .Depth = 1,
    };
    TRY(driver_enter() ?: driver_context(driver_device(), &context));
    return answer(cuda.cuGraphAddMemcpyNode(node, graph, nodes, count, &theirs, context));
}

/* ---- the rest ------------------------------------------------------------------------------------ */

EXPORT hipError_t hipGraphAddEmptyNode(
    hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes, size_t count) {
    return FORWARD(cuGraphAddEmptyNode, node, graph, nodes, count);
}

EXPORT hipError_t hipGraphAddHostNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes,
    size_t count, const hipHostNodeParams *host) {
    return FORWARD(cuGraphAddHostNode, node, graph, nodes, count, host);
}

EXPORT hipError_t hipGraphAddChildGraphNode(
    hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *nodes, size_t count, hipGraph_t child) {
    return FORWARD(cuGraphAddChildGraphNode, node, graph, nodes, count, child);
}

EXPORT hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams *found) {
    return FORWARD(cuGraphHostNodeGetParams, node, found);
}

EXPORT hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t *graph) {
    return FORWARD(cuGraphChildGraphNodeGetGraph, node, graph);
}

EXPORT hipError_t hipGraphMemAllocNodeGetParams(hipGraphNode_t node, hipMemAllocNodeParams *found) {
    return FORWARD(cuGraphMemAllocNodeGetParams, node, found);
}

EXPORT hipError_t hipGraphMemFreeNodeGetParams(hipGraphNode_t node, void *found) {
    return FORWARD(cuGraphMemFreeNodeGetParams, node, found);
}
