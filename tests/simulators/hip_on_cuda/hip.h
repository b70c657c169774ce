/* HIP's C ABI (runtime 6 and 7), as far as the HIP backend, its tests and the benchmarks call it.
 *
 * Handles are CUDA's own. A number that passes through unchanged is asserted here against CUDA's header, and
 * HIP's layout of a structure against its documentation. */
#ifndef SHIM_HIP_H
#define SHIM_HIP_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

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
typedef int hipDevice_t;

#define hipStreamLegacy ((hipStream_t)1)
#define hipStreamPerThread ((hipStream_t)2)
_Static_assert((uintptr_t)hipStreamLegacy == (uintptr_t)CU_STREAM_LEGACY, "the legacy stream");
_Static_assert((uintptr_t)hipStreamPerThread == (uintptr_t)CU_STREAM_PER_THREAD, "the per-thread stream");

enum { hipStreamNonBlocking = 1, hipEventDisableTiming = 2, hipGraphDebugDotFlagsVerbose = 1 };
SAME(hipStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(hipEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(hipGraphDebugDotFlagsVerbose, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);

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

enum { hipGraphInstantiateFlagAutoFreeOnLaunch = 1, hipGraphInstantiateFlagUseNodePriority = 8 };
SAME(hipGraphInstantiateFlagAutoFreeOnLaunch, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
SAME(hipGraphInstantiateFlagUseNodePriority, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);

typedef enum {
    hipGraphNodeTypeKernel,
    hipGraphNodeTypeMemcpy,
    hipGraphNodeTypeMemset,
    hipGraphNodeTypeHost,
    hipGraphNodeTypeGraph,
    hipGraphNodeTypeEmpty,
    hipGraphNodeTypeMemAlloc = 10,
    hipGraphNodeTypeMemFree,
} hipGraphNodeType;
SAME(hipGraphNodeTypeKernel, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(hipGraphNodeTypeMemcpy, CU_GRAPH_NODE_TYPE_MEMCPY);
SAME(hipGraphNodeTypeMemset, CU_GRAPH_NODE_TYPE_MEMSET);
SAME(hipGraphNodeTypeHost, CU_GRAPH_NODE_TYPE_HOST);
SAME(hipGraphNodeTypeGraph, CU_GRAPH_NODE_TYPE_GRAPH);
SAME(hipGraphNodeTypeEmpty, CU_GRAPH_NODE_TYPE_EMPTY);
SAME(hipGraphNodeTypeMemAlloc, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME(hipGraphNodeTypeMemFree, CU_GRAPH_NODE_TYPE_MEM_FREE);

typedef enum {
    hipGraphMemAttrUsedMemCurrent,
    hipGraphMemAttrUsedMemHigh,
    hipGraphMemAttrReservedMemCurrent,
    hipGraphMemAttrReservedMemHigh,
} hipGraphMemAttributeType;
SAME(hipGraphMemAttrUsedMemCurrent, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
SAME(hipGraphMemAttrReservedMemHigh, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);

typedef enum { /* the numbers of CUDA differ */
    hipMemcpyHostToHost,
    hipMemcpyHostToDevice,
    hipMemcpyDeviceToHost,
    hipMemcpyDeviceToDevice,
    hipMemcpyDefault,
} hipMemcpyKind;

enum { HIP_LAUNCH_PARAM_BUFFER_POINTER = 1, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END };
_Static_assert((uintptr_t)HIP_LAUNCH_PARAM_BUFFER_POINTER == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER, "");
_Static_assert((uintptr_t)HIP_LAUNCH_PARAM_BUFFER_SIZE == (uintptr_t)CU_LAUNCH_PARAM_BUFFER_SIZE, "");

typedef struct {
    unsigned x, y, z;
} hipDim3;

typedef struct {
    hipDim3 blockDim;
    void **extra;
    void *func;
    hipDim3 gridDim;
    void **kernelParams;
    unsigned sharedMemBytes;
} hipKernelNodeParams;
#define AT(field, offset) \
    _Static_assert(offsetof(hipKernelNodeParams, field) == (offset), #field " in HIP")
_Static_assert(sizeof(hipKernelNodeParams) == 64, "hipKernelNodeParams in HIP");
AT(extra, 16);
AT(func, 24);
AT(gridDim, 32);
AT(kernelParams, 48);
AT(sharedMemBytes, 56);

/* HIP_ERRORS(m): m(name, number, the same error of CUDA, what it means) */
#define HIP_ERRORS(m)                                                                                      \
    m(hipSuccess, 0, CUDA_SUCCESS, "no error")                                                             \
    m(hipErrorInvalidValue, 1, CUDA_ERROR_INVALID_VALUE, "invalid argument")                               \
    m(hipErrorOutOfMemory, 2, CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                   \
    m(hipErrorNotInitialized, 3, CUDA_ERROR_NOT_INITIALIZED, "initialization error")                       \
    m(hipErrorDeinitialized, 4, CUDA_ERROR_DEINITIALIZED, "driver shutting down")                          \
    m(hipErrorNoDevice, 100, CUDA_ERROR_NO_DEVICE, "no device is detected")                                \
    m(hipErrorInvalidDevice, 101, CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                     \
    m(hipErrorInvalidImage, 200, CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")               \
    m(hipErrorInvalidContext, 201, CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                   \
    m(hipErrorNoBinaryForGpu, 209, CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for this device")        \
    m(hipErrorECCNotCorrectable, 214, CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error")             \
    m(hipErrorInvalidKernelFile, 218, CUDA_ERROR_INVALID_PTX, "invalid kernel file")                       \
    m(hipErrorOperatingSystem, 304, CUDA_ERROR_OPERATING_SYSTEM, "an operating system call failed")        \
    m(hipErrorInvalidHandle, 400, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                    \
    m(hipErrorIllegalState, 401, CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed now")        \
    m(hipErrorNotFound, 500, CUDA_ERROR_NOT_FOUND, "named symbol not found")                               \
    m(hipErrorNotReady, 600, CUDA_ERROR_NOT_READY, "device not ready")                                     \
    m(hipErrorIllegalAddress, 700, CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access")                 \
    m(hipErrorLaunchOutOfResources, 701, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources")         \
    m(hipErrorLaunchTimeOut, 702, CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out")                       \
    m(hipErrorContextIsDestroyed, 709, CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")            \
    m(hipErrorAssert, 710, CUDA_ERROR_ASSERT, "device-side assertion")                                     \
    m(hipErrorLaunchFailure, 719, CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                  \
    m(hipErrorNotSupported, 801, CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                      \
    m(hipErrorStreamCaptureUnsupported, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not while capturing") \
    m(hipErrorStreamCaptureInvalidated, 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "invalidated before")  \
    m(hipErrorStreamCaptureMerge, 902, CUDA_ERROR_STREAM_CAPTURE_MERGE, "would merge two captures")        \
    m(hipErrorStreamCaptureUnmatched, 903, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "not the first stream")    \
    m(hipErrorStreamCaptureUnjoined, 904, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "unjoined work")             \
    m(hipErrorStreamCaptureIsolation, 905, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "depends on other work")   \
    m(hipErrorStreamCaptureImplicit, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "legacy stream")             \
    m(hipErrorCapturedEvent, 907, CUDA_ERROR_CAPTURED_EVENT, "not permitted on a captured event")          \
    m(hipErrorStreamCaptureWrongThread, 908, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread's")   \
    m(hipErrorGraphExecUpdateFailure, 910, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graphs differ")      \
    m(hipErrorUnknown, 999, CUDA_ERROR_UNKNOWN, "unknown error")

#define HIP_NUMBER(name, number, cuda, text) name = number,
typedef enum { HIP_ERRORS(HIP_NUMBER) } hipError_t;

#endif
