/* Memory: allocated, copied, filled, looked up. */
#include <stdbool.h>

#include "shim.h"

EXPORT hipError_t hipMalloc(void **memory, size_t nbytes) {
    REFUSE_IF(!memory, hipErrorInvalidValue);
    if (nbytes) return FORWARD(cuMemAlloc, (CUdeviceptr *)memory, nbytes);
    *memory = NULL; /* where CUDA refuses */
    return answer(driver_enter());
}

EXPORT hipError_t hipMallocManaged(void **memory, size_t nbytes, unsigned flags) {
    return FORWARD(cuMemAllocManaged, (CUdeviceptr *)memory, nbytes, flags);
}

EXPORT hipError_t hipFree(void *memory) {
    return memory ? FORWARD(cuMemFree, ADDRESS(memory)) : answer(driver_enter());
}

/* HIP has more flags, about coherence and placement. */
EXPORT hipError_t hipHostMalloc(void **memory, size_t nbytes, unsigned flags) {
    return FORWARD(cuMemHostAlloc, memory, nbytes,
        flags & (hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined));
}

EXPORT hipError_t hipHostFree(void *memory) {
    return memory ? FORWARD(cuMemFreeHost, memory) : answer(driver_enter());
}

EXPORT hipError_t hipMemGetInfo(size_t *free, size_t *total) { return FORWARD(cuMemGetInfo, free, total); }

/* Memory that nobody registered is no error since HIP 6. */
EXPORT hipError_t hipPointerGetAttributes(hipPointerAttribute_t *found, const void *pointer) {
    unsigned type = 0, managed = 0;
    int device = 0;
    CUdeviceptr on_device = 0;
    void *on_host = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *answers[] = {&type, &device, &on_device, &on_host, &managed};
    REFUSE_IF(!found || !pointer, hipErrorInvalidValue);
    TRY(driver_enter() ?: cuda.cuPointerGetAttributes(5, wanted, answers, ADDRESS(pointer)));
    *found = (hipPointerAttribute_t){
        .type = managed                       ? hipMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST   ? hipMemoryTypeHost
                : type == CU_MEMORYTYPE_DEVICE ? hipMemoryTypeDevice
                                               : hipMemoryTypeUnregistered,
        .device = device,
        .devicePointer = POINTER(on_device),
        .hostPointer = on_host,
        .isManaged = managed,
    };
    return answer_hip(hipSuccess);
}

/* ---- copies: the driver sees from the addresses where they go ------------------------------------ */

static bool is_kind(hipMemcpyKind kind) {
    return (kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault) || kind == hipMemcpyDeviceToDeviceNoCU;
}

static hipError_t copy_async(void *to, const void *from, size_t nbytes, hipStream_t stream) {
    return FORWARD(cuMemcpyAsync, ADDRESS(to), ADDRESS(from), nbytes, stream);
}

static hipError_t copy_and_wait(void *to, const void *from, size_t nbytes, hipStream_t stream) {
    hipError_t code = copy_async(to, from, nbytes, stream);
    return code == hipSuccess ? FORWARD(cuStreamSynchronize, stream) : code;
}

EXPORT hipError_t hipMemcpyHtoD(hipDeviceptr_t to, const void *from, size_t nbytes) {
    return FORWARD(cuMemcpyHtoD, ADDRESS(to), from, nbytes);
}

EXPORT hipError_t hipMemcpyDtoH(void *to, hipDeviceptr_t from, size_t nbytes) {
    return FORWARD(cuMemcpyDtoH, to, ADDRESS(from), nbytes);
}

EXPORT hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t nbytes) {
    return copy_and_wait(to, from, nbytes, NULL);
}

EXPORT hipError_t hipMemcpy(void *to, const void *from, size_t nbytes, hipMemcpyKind kind) {
    REFUSE_IF(!is_kind(kind), hipErrorInvalidMemcpyDirection);
    if (nbytes == 0) return answer(driver_enter());
    if (kind == hipMemcpyHostToDevice) return hipMemcpyHtoD(to, from, nbytes);
    if (kind == hipMemcpyDeviceToHost) return hipMemcpyDtoH(to, (void *)from, nbytes);
    return copy_and_wait(to, from, nbytes, NULL);
}

EXPORT hipError_t hipMemcpyWithStream(
    void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
    REFUSE_IF(!is_kind(kind), hipErrorInvalidMemcpyDirection);
    return copy_and_wait(to, from, nbytes, stream);
}

EXPORT hipError_t hipMemcpyAsync(
    void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
    REFUSE_IF(!is_kind(kind), hipErrorInvalidMemcpyDirection);
    return copy_async(to, from, nbytes, stream);
}

EXPORT hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, const void *from, size_t nbytes, hipStream_t stream) {
    return copy_async(to, from, nbytes, stream);
}

EXPORT hipError_t hipMemcpyDtoHAsync(void *to, hipDeviceptr_t from, size_t nbytes, hipStream_t stream) {
    return copy_async(to, from, nbytes, stream);
}

EXPORT hipError_t hipMemcpyDtoDAsync(
    hipDeviceptr_t to, hipDeviceptr_t from, size_t nbytes, hipStream_t stream) {
    return copy_async(to, from, nbytes, stream);
}

/* ---- fills --------------------------------------------------------------------------------------- */

EXPORT hipError_t hipMemset(void *to, int value, size_t nbytes) {
    return FORWARD(cuMemsetD8, ADDRESS(to), (unsigned char)value, nbytes);
}

EXPORT hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count) {
    return FORWARD(cuMemsetD8, ADDRESS(to), value, count);
}

EXPORT hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count) {
    return FORWARD(cuMemsetD16, ADDRESS(to), value, count);
}

EXPORT hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count) {
    return FORWARD(cuMemsetD32, ADDRESS(to), (unsigned)value, count);
}

EXPORT hipError_t hipMemsetAsync(void *to, int value, size_t nbytes, hipStream_t stream) {
    return FORWARD(cuMemsetD8Async, ADDRESS(to), (unsigned char)value, nbytes, stream);
}

EXPORT hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
    return FORWARD(cuMemsetD8Async, ADDRESS(to), value, count, stream);
}

EXPORT hipError_t hipMemsetD16Async(
    hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream) {
    return FORWARD(cuMemsetD16Async, ADDRESS(to), value, count, stream);
}

EXPORT hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
    return FORWARD(cuMemsetD32Async, ADDRESS(to), (unsigned)value, count, stream);
}
