/* Modules and kernels. */
#include "shim.h"

EXPORT hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
    return FORWARD(cuModuleLoadData, module, image);
}

EXPORT hipError_t hipModuleUnload(hipModule_t module) { return FORWARD(cuModuleUnload, module); }

EXPORT hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
    TRY(driver_enter() ?: cuda.cuModuleGetFunction(function, module, name));
    (void)cuda.cuFuncLoad(*function); /* now, as AMD's runtime does, not at a launch that is captured */
    return answer_hip(hipSuccess);
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

/* It is asked for the name of a kernel that a compiler put into the host's program. */
EXPORT const char *hipKernelNameRefByPtr(UNUSED const void *kernel, UNUSED hipStream_t stream) {
    return NULL;
}

EXPORT const char *hipKernelNameRef(hipFunction_t function) {
    const char *name = NULL;
    if (!function || driver_enter() || cuda.cuFuncGetName(&name, function)) return NULL;
    return name;
}
