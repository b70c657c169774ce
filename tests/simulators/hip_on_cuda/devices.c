/* Versions, devices and what they can do. */
#include <stdio.h>
#include <string.h>

#include "shim.h"

enum { VERSION = 70200000 }; /* HIP 7.2, of which there is no patch 0 */

/* HIP numbers the attributes of a device in its own way. */
static const struct {
    int hip;
    CUdevice_attribute cuda;
} attributes[] = {
    {0, CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
    {2, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {3, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
    {5, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {6, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {8, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
    {9, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
    {10, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {16, CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {19, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {23, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {24, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
    {26, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
    {27, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
    {28, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
    {29, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
    {30, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
    {31, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
    {56, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {57, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {59, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {60, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {61, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {63, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {65, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
    {67, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
    {68, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {69, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
    {71, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {74, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {75, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {76, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {78, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
    {83, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
    {85, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
    {87, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {88, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {89, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
};

EXPORT hipError_t hipRuntimeGetVersion(int *version) {
    REFUSE_IF(!version, hipErrorInvalidValue);
    *version = VERSION;
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipDriverGetVersion(int *version) { return hipRuntimeGetVersion(version); }

EXPORT hipError_t hipInit(unsigned flags) {
    REFUSE_IF(flags, hipErrorInvalidValue);
    return answer(driver_ready());
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

EXPORT hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) {
    return answer(driver_ready() ?: cuda.cuDeviceGet(device, ordinal));
}

EXPORT hipError_t hipDeviceSynchronize(void) { return FORWARD(cuCtxSynchronize); }

EXPORT hipError_t hipDeviceGetName(char *name, int length, hipDevice_t device) {
    return answer(driver_ready() ?: cuda.cuDeviceGetName(name, length, device));
}

EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device) {
    return answer(driver_ready() ?: cuda.cuDeviceTotalMem(bytes, device));
}

EXPORT hipError_t hipDeviceGetAttribute(int *value, int attribute, int device) {
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].hip == attribute)
            return answer(driver_ready() ?: cuda.cuDeviceGetAttribute(value, attributes[i].cuda, device));
    return answer_hip(hipErrorInvalidValue);
}

EXPORT hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return FORWARD(cuCtxGetStreamPriorityRange, least, greatest);
}

/* Zero where the driver has no answer. */
static int attribute(CUdevice_attribute which, int device) {
    int value = 0;
    return cuda.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

EXPORT hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *found, int device) {
    CUdevice handle;
    CUuuid uuid;
    REFUSE_IF(!found, hipErrorInvalidValue);
    TRY(driver_ready() ?: cuda.cuDeviceGet(&handle, device));
    memset(found, 0, sizeof *found);
    if (cuda.cuDeviceGetName(found->name, sizeof found->name, device)) strcpy(found->name, "unknown");
    if (cuda.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS) memcpy(found->uuid, &uuid, sizeof found->uuid);
    if (cuda.cuDeviceTotalMem(&found->totalGlobalMem, device)) found->totalGlobalMem = 0;
#define GET(field, which) found->field = attribute(CU_DEVICE_ATTRIBUTE_##which, device)
    GET(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    GET(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    GET(warpSize, WARP_SIZE);
    GET(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    for (int i = 0; i < 3; i++) {
        found->maxThreadsDim[i] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i, device);
        found->maxGridSize[i] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i, device);
    }
    GET(clockRate, CLOCK_RATE);
    GET(totalConstMem, TOTAL_CONSTANT_MEMORY);
    GET(major, COMPUTE_CAPABILITY_MAJOR);
    GET(minor, COMPUTE_CAPABILITY_MINOR);
    GET(multiProcessorCount, MULTIPROCESSOR_COUNT);
    GET(integrated, INTEGRATED);
    GET(canMapHostMemory, CAN_MAP_HOST_MEMORY);
    GET(concurrentKernels, CONCURRENT_KERNELS);
    GET(pciBusID, PCI_BUS_ID);
    GET(pciDeviceID, PCI_DEVICE_ID);
    GET(pciDomainID, PCI_DOMAIN_ID);
    GET(asyncEngineCount, ASYNC_ENGINE_COUNT);
    GET(unifiedAddressing, UNIFIED_ADDRESSING);
    GET(memoryClockRate, MEMORY_CLOCK_RATE);
    GET(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    GET(l2CacheSize, L2_CACHE_SIZE);
    GET(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    GET(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
    GET(managedMemory, MANAGED_MEMORY);
    GET(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
    GET(cooperativeLaunch, COOPERATIVE_LAUNCH);
    GET(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
    snprintf(found->gcnArchName, sizeof found->gcnArchName, "sm_%d%d", found->major, found->minor);
    return answer_hip(hipSuccess);
}
