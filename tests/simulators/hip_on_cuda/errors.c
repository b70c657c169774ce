/* Errors: CUDA's translated into HIP's, named, explained, and remembered by each thread. */
#include "shim.h"

SAME(hipErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(hipErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(hipErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(hipErrorDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME(hipErrorNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(hipErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(hipErrorInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME(hipErrorInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(hipErrorMapFailed, CUDA_ERROR_MAP_FAILED);
SAME(hipErrorNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(hipErrorECCNotCorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(hipErrorInvalidKernelFile, CUDA_ERROR_INVALID_PTX);
SAME(hipErrorInvalidSource, CUDA_ERROR_INVALID_SOURCE);
SAME(hipErrorFileNotFound, CUDA_ERROR_FILE_NOT_FOUND);
SAME(hipErrorOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM);
SAME(hipErrorInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(hipErrorIllegalState, CUDA_ERROR_ILLEGAL_STATE);
SAME(hipErrorNotFound, CUDA_ERROR_NOT_FOUND);
SAME(hipErrorNotReady, CUDA_ERROR_NOT_READY);
SAME(hipErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(hipErrorLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(hipErrorLaunchTimeOut, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(hipErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(hipErrorPeerAccessNotEnabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
SAME(hipErrorSetOnActiveProcess, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
SAME(hipErrorContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(hipErrorAssert, CUDA_ERROR_ASSERT);
SAME(hipErrorHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(hipErrorHostMemoryNotRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(hipErrorLaunchFailure, CUDA_ERROR_LAUNCH_FAILED);
SAME(hipErrorCooperativeLaunchTooLarge, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
SAME(hipErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(hipErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(hipErrorStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(hipErrorStreamCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE);
SAME(hipErrorStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
SAME(hipErrorStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME(hipErrorStreamCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
SAME(hipErrorStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(hipErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT);
SAME(hipErrorStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
SAME(hipErrorGraphExecUpdateFailure, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
SAME(hipErrorUnknown, CUDA_ERROR_UNKNOWN);

static _Thread_local hipError_t last_error, last_answer;

static const char *name_of(hipError_t code) {
    switch (code) {
#define NAME(name, number, text) \
    case name: return #name;
        HIP_ERRORS(NAME)
    }
    return NULL;
}

static const char *text_of(hipError_t code) {
    switch (code) {
#define TEXT(name, number, text) \
    case name: return text;
        HIP_ERRORS(TEXT)
    }
    return NULL;
}

static hipError_t translated(CUresult code) {
    switch ((int)code) {
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return hipErrorInsufficientDriver;
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return hipErrorNoDevice;
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_PC: return hipErrorLaunchFailure;
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: return hipErrorIllegalAddress;
    case CUDA_ERROR_SYSTEM_NOT_READY: return hipErrorNotInitialized;
    case CUDA_ERROR_NOT_PERMITTED: return hipErrorNotSupported;
    case CUDA_ERROR_EXTERNAL_DEVICE: return hipErrorUnknown; /* 911 and 912 mean textures in HIP */
    case CUDA_ERROR_INVALID_CLUSTER_SIZE: return hipErrorInvalidConfiguration;
    case CUDA_ERROR_FUNCTION_NOT_LOADED: return hipErrorInvalidDeviceFunction;
    case CUDA_ERROR_INVALID_RESOURCE_TYPE:
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: return hipErrorInvalidValue;
    }
    return name_of((hipError_t)code) ? (hipError_t)code : hipErrorUnknown;
}

hipError_t answer_hip(hipError_t code) {
    last_answer = code;
    if (code != hipSuccess && code != hipErrorNotReady) last_error = code;
    return code;
}

hipError_t answer(CUresult code) { return answer_hip(translated(code)); }

EXPORT hipError_t hipPeekAtLastError(void) { return last_error; }

EXPORT hipError_t hipGetLastError(void) {
    hipError_t code = last_error;
    last_error = hipSuccess;
    return code;
}

EXPORT hipError_t hipExtGetLastError(void) {
    hipError_t code = last_answer;
    last_answer = hipSuccess;
    return code;
}

EXPORT const char *hipGetErrorName(hipError_t code) { return name_of(code) ?: "hipErrorUnknown"; }

EXPORT const char *hipGetErrorString(hipError_t code) { return text_of(code) ?: "unknown error"; }

EXPORT hipError_t hipDrvGetErrorName(hipError_t code, const char **name) {
    REFUSE_IF(!name || !name_of(code), hipErrorInvalidValue);
    *name = name_of(code);
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipDrvGetErrorString(hipError_t code, const char **text) {
    REFUSE_IF(!text || !text_of(code), hipErrorInvalidValue);
    *text = text_of(code);
    return answer_hip(hipSuccess);
}
