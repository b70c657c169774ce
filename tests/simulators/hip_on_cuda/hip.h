/* HIP's C ABI (runtime 6 and 7), as far as the shim has it: types, numbers and layouts.
 *
 * Handles are CUDA's own, so they need no translation. That a number passes through as it is, is asserted
 * here against CUDA's header; layouts stand in layouts.h. */
#ifndef SHIM_HIP_H
#define SHIM_HIP_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "errors.h"

#if CUDA_VERSION < 13000
#error "the shim needs the headers of CUDA 13 or newer"
#endif

#define SAME(hip, cuda) _Static_assert((int)(hip) == (int)(cuda), #hip " is " #cuda)

typedef CUstream hipStream_t;
typedef CUevent hipEvent_t;
typedef CUgraph hipGraph_t;
typedef CUgraphNode hipGraphNode_t;
typedef CUgraphExec hipGraphExec_t;
typedef CUmodule hipModule_t;
typedef CUfunction hipFunction_t;
typedef CUmemoryPool hipMemPool_t;
typedef CUarray hipArray_t;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef void (*hipHostFn_t)(void *);

/* ---- numbers that pass through ------------------------------------------------------------------- */

typedef enum { hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed }
    hipStreamCaptureMode;
SAME(hipStreamCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME(hipStreamCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(hipStreamCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);

typedef enum { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive, hipStreamCaptureStatusInvalidated }
    hipStreamCaptureStatus;
SAME(hipStreamCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(hipStreamCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(hipStreamCaptureStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);

enum { hipStreamAddCaptureDependencies, hipStreamSetCaptureDependencies };
SAME(hipStreamAddCaptureDependencies, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
SAME(hipStreamSetCaptureDependencies, CU_STREAM_SET_CAPTURE_DEPENDENCIES);

enum { hipStreamDefault, hipStreamNonBlocking };
SAME(hipStreamDefault, CU_STREAM_DEFAULT);
SAME(hipStreamNonBlocking, CU_STREAM_NON_BLOCKING);

#define hipStreamLegacy ((hipStream_t)1)
#define hipStreamPerThread ((hipStream_t)2)
_Static_assert((uintptr_t)hipStreamLegacy == (uintptr_t)CU_STREAM_LEGACY, "the legacy stream");
_Static_assert((uintptr_t)hipStreamPerThread == (uintptr_t)CU_STREAM_PER_THREAD, "the per-thread stream");

enum { hipEventDefault = 0, hipEventBlockingSync = 1, hipEventDisableTiming = 2, hipEventInterprocess = 4 };
SAME(hipEventDefault, CU_EVENT_DEFAULT);
SAME(hipEventBlockingSync, CU_EVENT_BLOCKING_SYNC);
SAME(hipEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(hipEventInterprocess, CU_EVENT_INTERPROCESS);

enum { hipHostMallocPortable = 1, hipHostMallocMapped = 2, hipHostMallocWriteCombined = 4 };
SAME(hipHostMallocPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME(hipHostMallocMapped, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(hipHostMallocWriteCombined, CU_MEMHOSTALLOC_WRITECOMBINED);

enum { hipMemAttachGlobal = 1, hipMemAttachHost = 2 };
SAME(hipMemAttachGlobal, CU_MEM_ATTACH_GLOBAL);
SAME(hipMemAttachHost, CU_MEM_ATTACH_HOST);

enum {
    hipGraphInstantiateFlagAutoFreeOnLaunch = 1,
    hipGraphInstantiateFlagUpload = 2,
    hipGraphInstantiateFlagDeviceLaunch = 4,
    hipGraphInstantiateFlagUseNodePriority = 8,
};
SAME(hipGraphInstantiateFlagAutoFreeOnLaunch, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
SAME(hipGraphInstantiateFlagUseNodePriority, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);

typedef enum {
    hipGraphInstantiateSuccess,
    hipGraphInstantiateError,
    hipGraphInstantiateInvalidStructure,
    hipGraphInstantiateNodeOperationNotSupported,
    hipGraphInstantiateMultipleDevicesNotSupported,
} hipGraphInstantiateResult;
SAME(hipGraphInstantiateError, CUDA_GRAPH_INSTANTIATE_ERROR);
SAME(hipGraphInstantiateMultipleDevicesNotSupported, CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED);

typedef enum {
    hipGraphExecUpdateSuccess,
    hipGraphExecUpdateError,
    hipGraphExecUpdateErrorTopologyChanged,
    hipGraphExecUpdateErrorNodeTypeChanged,
    hipGraphExecUpdateErrorFunctionChanged,
    hipGraphExecUpdateErrorParametersChanged,
    hipGraphExecUpdateErrorNotSupported,
    hipGraphExecUpdateErrorUnsupportedFunctionChange,
} hipGraphExecUpdateResult;
SAME(hipGraphExecUpdateErrorTopologyChanged, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
SAME(hipGraphExecUpdateErrorUnsupportedFunctionChange,
    CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);

typedef enum {
    hipGraphNodeTypeKernel,
    hipGraphNodeTypeMemcpy,
    hipGraphNodeTypeMemset,
    hipGraphNodeTypeHost,
    hipGraphNodeTypeGraph,
    hipGraphNodeTypeEmpty,
    hipGraphNodeTypeWaitEvent,
    hipGraphNodeTypeEventRecord,
    hipGraphNodeTypeExtSemaphoreSignal,
    hipGraphNodeTypeExtSemaphoreWait,
    hipGraphNodeTypeMemAlloc,
    hipGraphNodeTypeMemFree,
    hipGraphNodeTypeMemcpyFromSymbol,
    hipGraphNodeTypeMemcpyToSymbol,
    hipGraphNodeTypeBatchMemOp,
} hipGraphNodeType;
SAME(hipGraphNodeTypeKernel, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(hipGraphNodeTypeMemcpy, CU_GRAPH_NODE_TYPE_MEMCPY);
SAME(hipGraphNodeTypeMemset, CU_GRAPH_NODE_TYPE_MEMSET);
SAME(hipGraphNodeTypeHost, CU_GRAPH_NODE_TYPE_HOST);
SAME(hipGraphNodeTypeGraph, CU_GRAPH_NODE_TYPE_GRAPH);
SAME(hipGraphNodeTypeEmpty, CU_GRAPH_NODE_TYPE_EMPTY);
SAME(hipGraphNodeTypeWaitEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
SAME(hipGraphNodeTypeEventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
SAME(hipGraphNodeTypeExtSemaphoreSignal, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL);
SAME(hipGraphNodeTypeExtSemaphoreWait, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
SAME(hipGraphNodeTypeMemAlloc, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME(hipGraphNodeTypeMemFree, CU_GRAPH_NODE_TYPE_MEM_FREE);

enum { hipGraphDebugDotFlagsVerbose = 1, hipGraphDebugDotFlagsHandles = 1 << 10 };
SAME(hipGraphDebugDotFlagsVerbose, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
SAME(hipGraphDebugDotFlagsHandles, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES);

typedef enum {
    hipMemPoolReuseFollowEventDependencies = 1,
    hipMemPoolAttrReleaseThreshold = 4,
    hipMemPoolAttrUsedMemHigh = 8,
} hipMemPoolAttr;
SAME(hipMemPoolReuseFollowEventDependencies, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES);
SAME(hipMemPoolAttrReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(hipMemPoolAttrUsedMemHigh, CU_MEMPOOL_ATTR_USED_MEM_HIGH);

typedef enum { hipGraphMemAttrUsedMemCurrent, hipGraphMemAttrReservedMemHigh = 3 } hipGraphMemAttributeType;
SAME(hipGraphMemAttrUsedMemCurrent, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
SAME(hipGraphMemAttrReservedMemHigh, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);

typedef enum { HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, HIP_FUNC_ATTRIBUTE_MAX = 10 } hipFunction_attribute;
SAME(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(HIP_FUNC_ATTRIBUTE_MAX - 1, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);

/* ---- numbers that don't -------------------------------------------------------------------------- */

typedef enum {
    hipMemcpyHostToHost,
    hipMemcpyHostToDevice,
    hipMemcpyDeviceToHost,
    hipMemcpyDeviceToDevice,
    hipMemcpyDefault,
    hipMemcpyDeviceToDeviceNoCU = 1024,
} hipMemcpyKind;

enum { hipMemoryTypeUnregistered, hipMemoryTypeHost, hipMemoryTypeDevice, hipMemoryTypeManaged };

enum { HIP_LAUNCH_PARAM_BUFFER_POINTER = 1, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END };
_Static_assert((uintptr_t)HIP_LAUNCH_PARAM_BUFFER_POINTER == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER, "");
_Static_assert((uintptr_t)HIP_LAUNCH_PARAM_BUFFER_SIZE == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_SIZE, "");

#endif
