/* HIP's C ABI forwarded to the CUDA driver: what its files share.
 *
 * HIP has a current device per thread, the CUDA driver a current context. So each thread's first call, and
 * every hipSetDevice, makes the primary context of its device current, and nothing changes it after that.
 * Contexts are retained once for each device and never released.
 *
 * Every function writes its results only on success, as AMD's runtime does at best. */
#ifndef SHIM_SHIM_H
#define SHIM_SHIM_H

#include "cuda_functions.h"
#include "layouts.h"

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

/* ---- the driver: its functions by name, or stand-ins that answer 100 without a driver, 801 without the
 * function ------------------------------------------------------------------------------------------ */

#define CUDA_MEMBER(name, version) __typeof__(name) *name;
extern struct cuda {
    CUDA_FUNCTIONS(CUDA_MEMBER)
} cuda;

CUresult driver_ready(void);              /* initialised, once; nothing is needed before */
CUresult driver_enter(void);              /* ready, and this thread has the context of its device */
CUresult driver_use(int device);          /* make a device this thread's own */
CUresult driver_context(int device, CUcontext *context);
int driver_device(void);                  /* this thread's own */

/* ---- answers: each call's last word, which the thread remembers ---------------------------------- */

hipError_t answer(CUresult code);
hipError_t answer_hip(hipError_t code);

#define FORWARD(function, ...) answer(driver_enter() ?: cuda.function(__VA_ARGS__))

/* Return from a function what is not success. */
#define TRY(code_expression)                                \
    do {                                                    \
        CUresult code_ = (code_expression);                 \
        if (code_ != CUDA_SUCCESS) return answer(code_);    \
    } while (0)

#define REFUSE_IF(condition, code) \
    do {                           \
        if (condition) return answer_hip(code); \
    } while (0)

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define POINTER(address) ((void *)(uintptr_t)(address))

#endif
