/* Errors: CUDA's translated into HIP's, explained, and remembered by each thread. */
#include "shim.h"

#define IS_CUDAS(name, number, cuda, text) SAME(name, cuda);
HIP_ERRORS(IS_CUDAS)

static _Thread_local hipError_t last_error;

static const char *text_of(hipError_t code) {
    switch (code) {
#define TEXT(name, number, cuda, text) \
    case name: return text;
        HIP_ERRORS(TEXT)
    }
    return NULL;
}

/* What HIP has no number for becomes the nearest, or unknown. */
static hipError_t translated(CUresult code) {
    switch ((int)code) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return hipErrorNoDevice;
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_INVALID_PC: return hipErrorLaunchFailure;
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: return hipErrorIllegalAddress;
    case CUDA_ERROR_SYSTEM_NOT_READY: return hipErrorNotInitialized;
    case CUDA_ERROR_NOT_PERMITTED: return hipErrorNotSupported;
    }
    return text_of((hipError_t)code) ? (hipError_t)code : hipErrorUnknown;
}

hipError_t answer_hip(hipError_t code) {
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

EXPORT const char *hipGetErrorString(hipError_t code) { return text_of(code) ?: "unknown error"; }
