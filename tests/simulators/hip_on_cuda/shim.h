/* HIP's C ABI forwarded to the CUDA driver: what its files share.
 *
 * HIP has a current device per thread, the CUDA driver a current context. So each thread's first call, and
 * every hipSetDevice, makes the primary context of its device current, and nothing changes it after that.
 * Contexts are retained once for each device and never released.
 *
 * Every function writes its results only on success, as AMD's runtime does at best. */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include "hip.h"

/* CUDA_FUNCTIONS(m): m(name, the version of CUDA from which on it has the signature of the header) */
#define CUDA_FUNCTIONS(m) \
    m(cuInit, 2000) m(cuDeviceGetCount, 2000) m(cuDeviceGet, 2000) m(cuDeviceGetName, 2000) \
    m(cuDevicePrimaryCtxRetain, 7000) m(cuCtxSetCurrent, 4000) m(cuCtxGetCurrent, 4000) \
    m(cuCtxGetDevice, 2000) m(cuCtxSynchronize, 2000) m(cuCtxGetStreamPriorityRange, 5050) \
    m(cuStreamCreate, 2000) m(cuStreamCreateWithPriority, 5050) m(cuStreamDestroy, 4000) \
    m(cuStreamSynchronize, 2000) m(cuStreamQuery, 2000) m(cuStreamWaitEvent, 3020) \
    m(cuStreamGetCtx, 9020) m(cuEventCreate, 2000) m(cuEventRecord, 2000) \
    m(cuEventDestroy, 4000) \
    m(cuEventQuery, 2000) m(cuEventSynchronize, 2000) m(cuEventElapsedTime, 2000) \
    m(cuMemAlloc, 3020) m(cuMemFree, 3020) m(cuMemHostAlloc, 2020) m(cuMemGetInfo, 3020) \
    m(cuMemGetAddressRange, 3020) \
    m(cuMemcpyHtoD, 3020) m(cuDeviceGetGraphMemAttribute, 11040) \
    m(cuMemcpyDtoH, 3020) m(cuMemcpyAsync, 4000) m(cuMemsetD8, 3020) m(cuMemsetD8Async, 3020) \
    m(cuStreamBeginCapture, 10010) m(cuStreamEndCapture, 10000) m(cuStreamIsCapturing, 10000) \
    m(cuStreamGetCaptureInfo, 12030) m(cuStreamUpdateCaptureDependencies, 12030) \
    m(cuThreadExchangeStreamCaptureMode, 10010) m(cuGraphDestroy, 10000) \
    m(cuGraphInstantiateWithFlags, 11040) m(cuGraphLaunch, 10000) m(cuGraphUpload, 11010) \
    m(cuGraphExecDestroy, 10000) m(cuGraphExecUpdate, 12000) m(cuGraphDebugDotPrint, 11030) m(cuGraphGetNodes, 10000) \
    m(cuGraphGetRootNodes, 10000) m(cuGraphGetEdges, 12030) m(cuGraphNodeGetType, 10000) \
    m(cuGraphKernelNodeGetParams, 12000) m(cuGraphAddEmptyNode, 10000) \
    m(cuGraphAddDependencies, 12030) m(cuGraphRemoveDependencies, 12030) m(cuGraphClone, 10000) \
    m(cuGraphAddEventRecordNode, 11010) m(cuGraphNodeFindInClone, 10000) \
    m(cuGraphAddEventWaitNode, 11010) m(cuGraphAddChildGraphNode, 10000) m(cuGraphChildGraphNodeGetGraph, 10000) \
    m(cuGraphDestroyNode, 10000) m(cuModuleLoadData, 2000) \
    m(cuModuleUnload, 2000) m(cuModuleGetFunction, 2000) m(cuLaunchKernel, 4000) \
    m(cuFuncGetName, 12030) m(cuFuncLoad, 12040) m(cuKernelGetFunction, 12000)

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

/* ---- the driver: its functions by name, or stand-ins that answer 100 without a driver, 801 without the
 * function ------------------------------------------------------------------------------------------ */

#define CUDA_MEMBER(name, version) __typeof__(name) *name;
extern struct cuda {
    CUDA_FUNCTIONS(CUDA_MEMBER)
} cuda;

CUresult driver_ready(void);              /* initialised, once; nothing is needed before */
CUresult driver_enter(void);              /* ready, and this thread has the context of its device */
CUresult driver_use(int device);          /* make a device this thread's own */
CUresult driver_context(int device, CUcontext *context);
int driver_device(void);                  /* this thread's own */

/* ---- answers: each call's last word, which the thread remembers ---------------------------------- */

hipError_t answer(CUresult code);
hipError_t answer_hip(hipError_t code);

#define FORWARD(function, ...) answer(driver_enter() ?: cuda.function(__VA_ARGS__))

/* Return from a function what is not success. */
#define TRY(code_expression)                                \
    do {                                                    \
        CUresult code_ = (code_expression);                 \
        if (code_ != CUDA_SUCCESS) return answer(code_);    \
    } while (0)

#define REFUSE_IF(condition, code) \
    do {                           \
        if (condition) return answer_hip(code); \
    } while (0)

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

#endif
