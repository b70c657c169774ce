/* Kernels: what the files about modules and launches share. */
#ifndef MODULES_H
#define MODULES_H

#include "streams.h"

struct kernel {
    handle handle;
    const struct native *native;
    handle context; /* 0: any */
    struct kernel *next;
};

struct kernel *kernel_of(handle which); /* a function's handle, or a kernel's; null if neither */

/* The work of a launch, or what is wrong with the launch. */
CUresult kernel_work(handle which, const struct geometry *geometry, void **parameters, void **extra,
    struct work *work);

/* Write where each parameter is in one block of memory, and then the size of that. */
size_t kernel_offsets(const struct native *native, size_t *offsets);

enum { BLOCK_END, BLOCK_POINTER, BLOCK_SIZE }; /* what stands before each value in `extra` */

#endif
