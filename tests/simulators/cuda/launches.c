/* The launch of a kernel. */
#include <string.h>

#include "modules.h"

enum { MOST_THREADS = 1024, EVERY_PARAMETER = 16 };

/* Each parameter is at its natural alignment. */
size_t kernel_offsets(const struct native *native, size_t *offsets) {
    size_t offset = 0;
    for (unsigned i = 0; i < native->count; i++) {
        size_t size = native->sizes[i], alignment = size < 8 ? size : 8;
        offset = (offset + alignment - 1) / alignment * alignment;
        offsets[i] = offset;
        offset += size;
    }
    return offset;
}

/* Find the parameters in one block of memory. */
static CUresult find_in_block(const struct native *native, void **extra, void **found) {
    char *block = NULL;
    const size_t *nbytes = NULL;
    size_t offsets[MOST_PARAMETERS];
    for (; *extra != (void *)BLOCK_END; extra += 2) {
        if (*extra == (void *)BLOCK_POINTER)
            block = extra[1];
        else if (*extra == (void *)BLOCK_SIZE)
            nbytes = extra[1];
        else
            return INVALID_VALUE;
    }
    if (!block || !nbytes) return INVALID_VALUE;
    size_t size = kernel_offsets(native, offsets);
    for (unsigned i = 0; i < native->count; i++) found[i] = block + offsets[i];
    return size <= *nbytes ? SUCCESS : INVALID_VALUE;
}

static bool is_possible(const struct geometry *geometry) {
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        threads *= geometry->block[i];
        blocks *= geometry->grid[i] != 0;
    }
    return blocks && threads && threads <= MOST_THREADS;
}

CUresult kernel_work(handle which, const struct geometry *geometry, void **parameters, void **extra,
    struct work *work) {
    void *found[MOST_PARAMETERS];
    struct kernel *kernel = kernel_of(which);
    if (!kernel) return INVALID_HANDLE;
    const struct native *native = kernel->native;
    if (extra) {
        if (parameters) return INVALID_VALUE;
        TRY(find_in_block(native, extra, found));
        parameters = found;
    }
    if ((native->count && !parameters) || !is_possible(geometry)) return INVALID_VALUE;
    *work = (struct work){.kind = WORK_KERNEL, .function = which, .native = native, .geometry = *geometry,
        .in_block = extra != NULL};
    size_t offset = 0;
    for (unsigned i = 0; i < native->count; i++) {
        memcpy(work->parameters + offset, parameters[i], native->sizes[i]);
        offset += (native->sizes[i] + EVERY_PARAMETER - 1) / EVERY_PARAMETER * EVERY_PARAMETER;
    }
    return SUCCESS;
}

API(11, 0, cuLaunchKernel, 4000, cuLaunchKernel, handle, which, unsigned, grid_x, unsigned, grid_y,
    unsigned, grid_z, unsigned, block_x, unsigned, block_y, unsigned, block_z, unsigned, shared, handle, on,
    void **, parameters, void **, extra) {
    struct geometry geometry = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
    struct kernel *kernel = kernel_of(which);
    struct stream *stream;
    struct work work;
    if (!kernel) return INVALID_HANDLE;
    TRY(stream_of(on, &stream));
    if (kernel->context && kernel->context != stream->context->handle) return INVALID_HANDLE;
    TRY(kernel_work(which, &geometry, parameters, extra, &work));
    return enqueue(on, &work);
}
