/* Nodes with parameters: how they are added by hand, and what they say. */
#include <string.h>

#include "graphs.h"
#include "modules.h"

static struct node *node_of(handle which, enum work_kind kind) {
    struct node *node = handle_get(which, NODE);
    return node && node->work.kind == kind ? node : NULL;
}

/* ---- kernels -------------------------------------------------------------------------------------- */

struct kernel_node_params {
    handle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    handle kernel, context;
};

API(5, 0, cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2, handle *, answer, handle, graph,
    const handle *, after, size_t, count, const struct kernel_node_params *, of) {
    struct work work;
    if (!of) return INVALID_VALUE;
    struct geometry geometry = {.shared = of->shared};
    memcpy(geometry.grid, of->grid, sizeof geometry.grid);
    memcpy(geometry.block, of->block, sizeof geometry.block);
    handle which = of->function ? of->function : of->kernel;
    TRY(kernel_work(which, &geometry, of->parameters, of->extra, &work));
    work.context = kernel_of(which)->context;
    if (!work.context) {
        struct context *context;
        TRY(context_current(&context));
        work.context = of->context ? of->context : context->handle;
    }
    return graph_add_after(answer, graph, after, count, &work, NULL);
}

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

/* ---- fills ---------------------------------------------------------------------------------------- */

API(6, 0, cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, const struct fill *, fill, handle, context) {
    struct work work;
    if (!handle_get(context, CONTEXT)) return INVALID_CONTEXT;
    if (!fill || !work_fill(&work, fill)) return INVALID_VALUE;
    work.context = context;
    return graph_add_after(answer, graph, after, count, &work, NULL);
}

API(2, 0, cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams, handle, which,
    struct fill *, answer) {
    const struct node *node = node_of(which, WORK_FILL);
    if (!node) return INVALID_VALUE;
    *answer = node->work.fill;
    return SUCCESS;
}

/* ---- copies --------------------------------------------------------------------------------------- */

enum { HOST_MEMORY = 1, DEVICE_MEMORY = 2, UNIFIED_MEMORY = 4 };

struct copy_end {
    size_t x, y, z, level;
    unsigned type;
    char *host, *device;
    void *array, *reserved;
    size_t pitch, height;
};

struct copy {
    struct copy_end from, to;
    size_t width, height, depth;
};

static char *address_of(const struct copy_end *end) {
    char *start = end->type == HOST_MEMORY ? end->host : end->device;
    return start + (end->z * end->height + end->y) * end->pitch + end->x;
}

static bool is_array(const struct copy_end *end) {
    return end->type != HOST_MEMORY && end->type != DEVICE_MEMORY && end->type != UNIFIED_MEMORY;
}

API(6, 0, cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, const struct copy *, copy, handle, context) {
    if (!handle_get(context, CONTEXT)) return INVALID_CONTEXT;
    if (!copy || !copy->width || !copy->height || !copy->depth) return INVALID_VALUE;
    if (copy->height != 1 || copy->depth != 1 || is_array(&copy->from) || is_array(&copy->to)) {
        count_unknown("a copy of more than one row");
        return NOT_SUPPORTED;
    }
    struct work work = {.kind = WORK_COPY,
                        .context = context,
                        .target = address_of(&copy->to),
                        .source = address_of(&copy->from),
                        .nbytes = copy->width};
    return graph_add_after(answer, graph, after, count, &work, NULL);
}

static struct copy_end end_of(char *address, size_t nbytes) {
    const struct allocation *memory = allocation_around(address);
    struct copy_end end = {.pitch = nbytes, .height = 1};
    end.type = memory && memory->place != ON_HOST ? DEVICE_MEMORY : HOST_MEMORY;
    *(end.type == HOST_MEMORY ? &end.host : &end.device) = address;
    return end;
}

API(2, 0, cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams, handle, which,
    struct copy *, answer) {
    const struct node *node = node_of(which, WORK_COPY);
    if (!node) return INVALID_VALUE;
    const struct work *work = &node->work;
    *answer = (struct copy){end_of(work->source, work->nbytes), end_of(work->target, work->nbytes),
        work->nbytes, 1, 1};
    return SUCCESS;
}

/* ---- host functions ------------------------------------------------------------------------------- */

struct host_node_params {
    host_function function;
    void *data;
};

API(5, 0, cuGraphAddHostNode, 10000, cuGraphAddHostNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, const struct host_node_params *, of) {
    if (!of || !of->function) return INVALID_VALUE;
    struct work work = {.kind = WORK_HOST, .host = of->function, .data = of->data};
    return graph_add_after(answer, graph, after, count, &work, NULL);
}

API(2, 0, cuGraphHostNodeGetParams, 10000, cuGraphHostNodeGetParams, handle, which,
    struct host_node_params *, answer) {
    const struct node *node = node_of(which, WORK_HOST);
    if (!node) return INVALID_VALUE;
    *answer = (struct host_node_params){node->work.host, node->work.data};
    return SUCCESS;
}

/* ---- memory --------------------------------------------------------------------------------------- */

struct alloc_node_params {
    struct pool_properties properties;
    const void *access;
    size_t access_count, nbytes;
    void *address;
};

API(2, 0, cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams, handle, which,
    struct alloc_node_params *, answer) {
    const struct node *node = node_of(which, WORK_ALLOC);
    if (!node) return INVALID_VALUE;
    const struct allocation *memory = node->work.memory;
    *answer = (struct alloc_node_params){
        .properties = {.type = PINNED, .location = {ON_A_DEVICE, memory->device}},
        .nbytes = memory->nbytes,
        .address = memory->address};
    return SUCCESS;
}

API(2, 0, cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams, handle, which, void **, answer) {
    const struct node *node = node_of(which, WORK_FREE);
    if (!node) return INVALID_VALUE;
    *answer = node->work.target;
    return SUCCESS;
}
