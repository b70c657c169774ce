/* Memory in stream order, and the memory of graphs. */
#include "shim.h"

EXPORT hipError_t hipMallocAsync(void **memory, size_t nbytes, hipStream_t stream) {
    return FORWARD(cuMemAllocAsync, (CUdeviceptr *)memory, nbytes, stream);
}

EXPORT hipError_t hipMallocFromPoolAsync(
    void **memory, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
    return FORWARD(cuMemAllocFromPoolAsync, (CUdeviceptr *)memory, nbytes, pool, stream);
}

EXPORT hipError_t hipFreeAsync(void *memory, hipStream_t stream) {
    return FORWARD(cuMemFreeAsync, ADDRESS(memory), stream);
}

EXPORT hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *pool, int device) {
    return FORWARD(cuDeviceGetDefaultMemPool, pool, device);
}

EXPORT hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties) {
    return FORWARD(cuMemPoolCreate, pool, properties);
}

EXPORT hipError_t hipMemPoolDestroy(hipMemPool_t pool) { return FORWARD(cuMemPoolDestroy, pool); }

EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t nbytes) {
    return FORWARD(cuMemPoolTrimTo, pool, nbytes);
}

EXPORT hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
    return FORWARD(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

EXPORT hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
    return FORWARD(cuMemPoolSetAttribute, pool, (CUmemPool_attribute)attribute, value);
}

EXPORT hipError_t hipDeviceGetGraphMemAttribute(int device, hipGraphMemAttributeType attribute, void *value) {
    return FORWARD(cuDeviceGetGraphMemAttribute, device, (CUgraphMem_attribute)attribute, value);
}

EXPORT hipError_t hipDeviceSetGraphMemAttribute(int device, hipGraphMemAttributeType attribute, void *value) {
    return FORWARD(cuDeviceSetGraphMemAttribute, device, (CUgraphMem_attribute)attribute, value);
}

EXPORT hipError_t hipDeviceGraphMemTrim(int device) { return FORWARD(cuDeviceGraphMemTrim, device); }
