/* Nodes with parameters: what they say. */
#include <string.h>

#include "graphs.h"
#include "modules.h"

static struct node *node_of(handle which, enum work_kind kind) {
    struct node *node = handle_get(which, NODE);
    return node && node->work.kind == kind ? node : NULL;
}

struct kernel_node_params {
    handle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    handle kernel, context;
};

API(2, 0, cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2, handle, which,
    struct kernel_node_params *, answer) {
    const struct node *node = node_of(which, WORK_KERNEL);
    if (!node) return INVALID_VALUE;
    const struct work *work = &node->work;
    *answer = (struct kernel_node_params){.shared = work->geometry.shared};
    memcpy(answer->grid, work->geometry.grid, sizeof answer->grid);
    memcpy(answer->block, work->geometry.block, sizeof answer->block);
    *(handle_is(work->function, KERNEL) ? &answer->kernel : &answer->function) = work->function;
    return SUCCESS;
}

API(2, 0, cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams, handle, which,
    struct fill *, answer) {
    const struct node *node = node_of(which, WORK_FILL);
    if (!node) return INVALID_VALUE;
    *answer = node->work.fill;
    return SUCCESS;
}
