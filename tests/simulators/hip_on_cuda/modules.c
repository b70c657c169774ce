/* Modules and kernels. */
#include "shim.h"

EXPORT hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
    return FORWARD(cuModuleLoadData, module, image);
}

/* The options of the two compilers have little in common. */
EXPORT hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, UNUSED unsigned count,
    UNUSED void *options, UNUSED void **values) {
    return FORWARD(cuModuleLoadData, module, image);
}

EXPORT hipError_t hipModuleUnload(hipModule_t module) { return FORWARD(cuModuleUnload, module); }

EXPORT hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
    TRY(driver_enter() ?: cuda.cuModuleGetFunction(function, module, name));
    (void)cuda.cuFuncLoad(*function); /* now, as AMD's runtime does, not at a launch that is captured */
    return answer_hip(hipSuccess);
}

EXPORT hipError_t hipModuleGetGlobal(
    hipDeviceptr_t *memory, size_t *nbytes, hipModule_t module, const char *name) {
    return FORWARD(cuModuleGetGlobal, (CUdeviceptr *)memory, nbytes, module, name);
}

/* All that `extra` can hold: two pairs and the end, which is 3 in HIP and 0 in CUDA. */
enum { MOST_EXTRA = 4 };

EXPORT hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
    hipStream_t stream, void **parameters, void **extra) {
    void *theirs[MOST_EXTRA + 1] = {0};
    for (int i = 0; extra && (uintptr_t)extra[i] != HIP_LAUNCH_PARAM_END; i++) {
        REFUSE_IF(i == MOST_EXTRA, hipErrorInvalidValue);
        theirs[i] = extra[i];
    }
    return FORWARD(cuLaunchKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
        stream, parameters, extra ? theirs : NULL);
}

EXPORT hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute attribute, hipFunction_t function) {
    REFUSE_IF(!value || attribute >= HIP_FUNC_ATTRIBUTE_MAX, hipErrorInvalidValue);
    return FORWARD(cuFuncGetAttribute, value, (CUfunction_attribute)attribute, function);
}

/* Of a function of a module: the shim knows no kernels that are compiled into the host's program. */
EXPORT hipError_t hipFuncGetAttributes(hipFuncAttributes *found, const void *function) {
    int values[HIP_FUNC_ATTRIBUTE_MAX];
    REFUSE_IF(!found || !function, hipErrorInvalidValue);
    TRY(driver_enter());
    for (int i = 0; i < HIP_FUNC_ATTRIBUTE_MAX; i++)
        TRY(cuda.cuFuncGetAttribute(&values[i], (CUfunction_attribute)i, (CUfunction)function));
    *found = (hipFuncAttributes){
        .binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
        .cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
        .constSizeBytes = values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
        .localSizeBytes = values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
        .maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
        .maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
        .numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS],
        .preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
        .ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION],
        .sharedSizeBytes = values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
    };
    return answer_hip(hipSuccess);
}

/* It is asked for the name of a kernel that a compiler put into the host's program. */
EXPORT const char *hipKernelNameRefByPtr(UNUSED const void *kernel, UNUSED hipStream_t stream) {
    return NULL;
}

EXPORT const char *hipKernelNameRef(hipFunction_t function) {
    const char *name = NULL;
    if (!function || driver_enter() || cuda.cuFuncGetName(&name, function)) return NULL;
    return name;
}
