/* Devices, and the version. */
#include "shim.h"

enum { VERSION = 70200000 }; /* HIP 7.2, of which there is no patch 0 */

EXPORT hipError_t hipRuntimeGetVersion(int *version) {
    REFUSE_IF(!version, hipErrorInvalidValue);
    *version = VERSION;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipGetDeviceCount(int *count) {
    REFUSE_IF(!count, hipErrorInvalidValue);
    *count = 0;
    TRY(driver_ready() ?: cuda.cuDeviceGetCount(count));
    return answer_hip(*count ? hipSuccess : hipErrorNoDevice);
}

EXPORT hipError_t hipGetDevice(int *device) {
    REFUSE_IF(!device, hipErrorInvalidValue);
    TRY(driver_ready());
    *device = driver_device();
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipSetDevice(int device) { return answer(driver_use(device)); }

EXPORT hipError_t hipDeviceGetName(char *name, int length, int device) {
    return answer(driver_ready() ?: cuda.cuDeviceGetName(name, length, device));
}

EXPORT hipError_t hipDeviceSynchronize(void) { return FORWARD(cuCtxSynchronize); }

EXPORT hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return FORWARD(cuCtxGetStreamPriorityRange, least, greatest);
}
