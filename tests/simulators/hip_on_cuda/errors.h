/* HIP's errors. */
#ifndef SHIM_ERRORS_H
#define SHIM_ERRORS_H

/* HIP_ERRORS(m): m(name, number, what it means) */
#define HIP_ERRORS(m)                                                                   \
    m(hipSuccess, 0, "no error")                                                        \
    m(hipErrorInvalidValue, 1, "invalid argument")                                      \
    m(hipErrorOutOfMemory, 2, "out of memory")                                          \
    m(hipErrorNotInitialized, 3, "initialization error")                                \
    m(hipErrorDeinitialized, 4, "driver shutting down")                                 \
    m(hipErrorProfilerDisabled, 5, "profiler disabled")                                 \
    m(hipErrorProfilerNotInitialized, 6, "profiler not initialized")                    \
    m(hipErrorProfilerAlreadyStarted, 7, "profiler already started")                    \
    m(hipErrorProfilerAlreadyStopped, 8, "profiler already stopped")                    \
    m(hipErrorInvalidConfiguration, 9, "invalid configuration argument")                \
    m(hipErrorInvalidPitchValue, 12, "invalid pitch argument")                          \
    m(hipErrorInvalidSymbol, 13, "invalid device symbol")                               \
    m(hipErrorInvalidDevicePointer, 17, "invalid device pointer")                       \
    m(hipErrorInvalidMemcpyDirection, 21, "invalid copy direction")                     \
    m(hipErrorInsufficientDriver, 35, "driver version is insufficient")                 \
    m(hipErrorMissingConfiguration, 52, "no configuration for the launch")              \
    m(hipErrorPriorLaunchFailure, 53, "an earlier launch failed")                       \
    m(hipErrorInvalidDeviceFunction, 98, "invalid device function")                     \
    m(hipErrorNoDevice, 100, "no device is detected")                                   \
    m(hipErrorInvalidDevice, 101, "invalid device ordinal")                             \
    m(hipErrorInvalidImage, 200, "device kernel image is invalid")                      \
    m(hipErrorInvalidContext, 201, "invalid device context")                            \
    m(hipErrorContextAlreadyCurrent, 202, "context is current already")                 \
    m(hipErrorMapFailed, 205, "mapping failed")                                         \
    m(hipErrorUnmapFailed, 206, "unmapping failed")                                     \
    m(hipErrorArrayIsMapped, 207, "array is mapped")                                    \
    m(hipErrorAlreadyMapped, 208, "resource is mapped already")                         \
    m(hipErrorNoBinaryForGpu, 209, "no kernel image for this device")                   \
    m(hipErrorAlreadyAcquired, 210, "resource is acquired already")                     \
    m(hipErrorNotMapped, 211, "resource is not mapped")                                 \
    m(hipErrorNotMappedAsArray, 212, "resource is not mapped as an array")              \
    m(hipErrorNotMappedAsPointer, 213, "resource is not mapped as a pointer")           \
    m(hipErrorECCNotCorrectable, 214, "uncorrectable ECC error")                        \
    m(hipErrorUnsupportedLimit, 215, "limit is not supported")                          \
    m(hipErrorContextAlreadyInUse, 216, "device is in use by another thread")           \
    m(hipErrorPeerAccessUnsupported, 217, "peer access is not supported")               \
    m(hipErrorInvalidKernelFile, 218, "invalid kernel file")                            \
    m(hipErrorInvalidGraphicsContext, 219, "invalid graphics context")                  \
    m(hipErrorInvalidSource, 300, "device kernel source is invalid")                    \
    m(hipErrorFileNotFound, 301, "file not found")                                      \
    m(hipErrorSharedObjectSymbolNotFound, 302, "symbol of a shared object not found")   \
    m(hipErrorSharedObjectInitFailed, 303, "initialization of a shared object failed")  \
    m(hipErrorOperatingSystem, 304, "an operating system call failed")                  \
    m(hipErrorInvalidHandle, 400, "invalid resource handle")                            \
    m(hipErrorIllegalState, 401, "the operation cannot be performed in this state")     \
    m(hipErrorNotFound, 500, "named symbol not found")                                  \
    m(hipErrorNotReady, 600, "device not ready")                                        \
    m(hipErrorIllegalAddress, 700, "an illegal memory access was encountered")          \
    m(hipErrorLaunchOutOfResources, 701, "too many resources requested for launch")     \
    m(hipErrorLaunchTimeOut, 702, "the launch timed out")                               \
    m(hipErrorPeerAccessAlreadyEnabled, 704, "peer access is enabled already")          \
    m(hipErrorPeerAccessNotEnabled, 705, "peer access is not enabled")                  \
    m(hipErrorSetOnActiveProcess, 708, "cannot be set while the device is active")      \
    m(hipErrorContextIsDestroyed, 709, "context is destroyed")                          \
    m(hipErrorAssert, 710, "device-side assertion")                                     \
    m(hipErrorHostMemoryAlreadyRegistered, 712, "host memory is registered already")    \
    m(hipErrorHostMemoryNotRegistered, 713, "host memory is not registered")            \
    m(hipErrorLaunchFailure, 719, "unspecified launch failure")                         \
    m(hipErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")  \
    m(hipErrorNotSupported, 801, "operation not supported")                             \
    m(hipErrorStreamCaptureUnsupported, 900, "not permitted when a stream is capturing") \
    m(hipErrorStreamCaptureInvalidated, 901, "failed due to an earlier capture error")  \
    m(hipErrorStreamCaptureMerge, 902, "would merge two captures")                      \
    m(hipErrorStreamCaptureUnmatched, 903, "capture was begun on another stream")       \
    m(hipErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")         \
    m(hipErrorStreamCaptureIsolation, 905, "dependency on uncaptured work")             \
    m(hipErrorStreamCaptureImplicit, 906, "would depend on the legacy stream")          \
    m(hipErrorCapturedEvent, 907, "not permitted on a captured event")                  \
    m(hipErrorStreamCaptureWrongThread, 908, "capture was begun by another thread")     \
    m(hipErrorGraphExecUpdateFailure, 910, "the executable could not be updated")       \
    m(hipErrorInvalidChannelDescriptor, 911, "invalid channel descriptor")              \
    m(hipErrorInvalidTexture, 912, "invalid texture reference")                         \
    m(hipErrorUnknown, 999, "unknown error")                                            \
    m(hipErrorRuntimeMemory, 1052, "memory call of the runtime failed")                 \
    m(hipErrorRuntimeOther, 1053, "call of the runtime failed")

#define HIP_NUMBER(name, number, text) name = number,
typedef enum { HIP_ERRORS(HIP_NUMBER) } hipError_t;

#endif
