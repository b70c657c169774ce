/* Memory: allocated, copied, filled. */
#include <stdbool.h>

#include "shim.h"

EXPORT hipError_t hipMalloc(void **memory, size_t nbytes) {
    REFUSE_IF(!memory, hipErrorInvalidValue);
    if (nbytes) return FORWARD(cuMemAlloc, (CUdeviceptr *)memory, nbytes);
    *memory = NULL; /* where CUDA refuses */
    return answer(driver_enter());
}

EXPORT hipError_t hipFree(void *memory) {
    return memory ? FORWARD(cuMemFree, ADDRESS(memory)) : answer(driver_enter());
}

/* Every memory of CUDA's host is coherent, so that flag means nothing there. */
EXPORT hipError_t hipHostMalloc(void **memory, size_t nbytes, unsigned flags) {
    enum { PORTABLE_MAPPED_COMBINED = 7, COHERENT = 0x40000000 };
    REFUSE_IF(!memory || flags & ~(unsigned)(PORTABLE_MAPPED_COMBINED | COHERENT), hipErrorInvalidValue);
    return FORWARD(cuMemHostAlloc, memory, nbytes, flags & PORTABLE_MAPPED_COMBINED);
}

EXPORT hipError_t hipMemGetInfo(size_t *free, size_t *total) { return FORWARD(cuMemGetInfo, free, total); }

EXPORT hipError_t hipMemGetAddressRange(void **base, size_t *nbytes, void *address) {
    return FORWARD(cuMemGetAddressRange, (CUdeviceptr *)base, nbytes, ADDRESS(address));
}

EXPORT hipError_t hipDeviceGetGraphMemAttribute(int device, hipGraphMemAttributeType which, void *value) {
    return FORWARD(cuDeviceGetGraphMemAttribute, device, (CUgraphMem_attribute)which, value);
}

static bool is_kind(hipMemcpyKind kind) { return kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault; }

/* The driver sees from the addresses where a copy goes. */
EXPORT hipError_t hipMemcpyAsync(
    void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
    REFUSE_IF(!is_kind(kind), hipErrorInvalidValue);
    return FORWARD(cuMemcpyAsync, ADDRESS(to), ADDRESS(from), nbytes, stream);
}

EXPORT hipError_t hipMemcpy(void *to, const void *from, size_t nbytes, hipMemcpyKind kind) {
    REFUSE_IF(!is_kind(kind), hipErrorInvalidValue);
    if (nbytes == 0) return answer(driver_enter());
    if (kind == hipMemcpyHostToDevice) return FORWARD(cuMemcpyHtoD, ADDRESS(to), from, nbytes);
    if (kind == hipMemcpyDeviceToHost) return FORWARD(cuMemcpyDtoH, to, ADDRESS(from), nbytes);
    TRY(driver_enter() ?: cuda.cuMemcpyAsync(ADDRESS(to), ADDRESS(from), nbytes, NULL));
    return answer(cuda.cuStreamSynchronize(NULL));
}

EXPORT hipError_t hipMemset(void *to, int value, size_t nbytes) {
    return FORWARD(cuMemsetD8, ADDRESS(to), (unsigned char)value, nbytes);
}

EXPORT hipError_t hipMemsetAsync(void *to, int value, size_t nbytes, hipStream_t stream) {
    return FORWARD(cuMemsetD8Async, ADDRESS(to), (unsigned char)value, nbytes, stream);
}
