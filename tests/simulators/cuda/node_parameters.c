/* Nodes with parameters: what they say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graphs.h"
#include "memory.h"
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

/* Of parameters that were given in one block the driver tells that block, and not where each one is. */
static void tell_block(struct node *node, struct kernel_node_params *answer) {
    size_t offsets[MOST_PARAMETERS];
    node->block_bytes = kernel_offsets(node->work.native, offsets);
    for (unsigned i = 0; i < node->work.native->count; i++)
        memcpy(node->block + offsets[i], node->parameters[i], node->work.native->sizes[i]);
    void *extra[] = {(void *)BLOCK_POINTER, node->block, (void *)BLOCK_SIZE, &node->block_bytes, (void *)BLOCK_END};
    memcpy(node->extra, extra, sizeof extra);
    answer->parameters = NULL;
    answer->extra = node->extra;
}

API(2, 0, cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2, handle, which,
    struct kernel_node_params *, answer) {
    struct node *node = node_of(which, WORK_KERNEL);
    if (!node) return INVALID_VALUE;
    const struct work *work = &node->work;
    work_parameters(work, node->parameters);
    *answer = (struct kernel_node_params){.shared = work->geometry.shared, .parameters = node->parameters};
    memcpy(answer->grid, work->geometry.grid, sizeof answer->grid);
    memcpy(answer->block, work->geometry.block, sizeof answer->block);
    if (work->in_block) tell_block(node, answer);
    *(handle_is(work->function, KERNEL) ? &answer->kernel : &answer->function) = work->function;
    answer->context = work->context;
    return SUCCESS;
}

/* An attribute of a kernel: of all, this driver has the cluster's dimensions. */
enum { CLUSTER_DIMENSION = 4 };

API(3, 0, cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute, handle, which, int, attribute,
    void *, value) {
    const struct node *node = node_of(which, WORK_KERNEL);
    if (!node || attribute != CLUSTER_DIMENSION) return INVALID_VALUE;
    memcpy(value, node->cluster, sizeof node->cluster);
    return SUCCESS;
}

API(3, 0, cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute, handle, which, int, attribute,
    const void *, value) {
    struct node *node = node_of(which, WORK_KERNEL);
    if (!node || attribute != CLUSTER_DIMENSION) return INVALID_VALUE;
    memcpy(node->cluster, value, sizeof node->cluster);
    return SUCCESS;
}

API(2, 0, cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams, handle, which,
    struct fill *, answer) {
    const struct node *node = node_of(which, WORK_FILL);
    if (!node) return INVALID_VALUE;
    *answer = node->work.fill;
    return SUCCESS;
}

struct side { /* of a copy */
    size_t x, y, z, level;
    int place; /* 1 host, 2 device */
    void *host;
    uint64_t device, array, reserved;
    size_t pitch, height;
};

struct copy_params {
    struct side source, target;
    size_t width, height, depth;
};

static struct side side_of(void *address, size_t nbytes) {
    const struct allocation *memory = allocation_around(address);
    struct side side = {.pitch = nbytes, .height = 1};
    if (memory && memory->place != ON_HOST) {
        side.place = 2;
        side.device = (uint64_t)(uintptr_t)address;
    } else {
        side.place = 1;
        side.host = address;
    }
    return side;
}

API(2, 0, cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams, handle, which,
    struct copy_params *, answer) {
    const struct node *node = node_of(which, WORK_COPY);
    if (!node) return INVALID_VALUE;
    const struct work *work = &node->work;
    *answer = (struct copy_params){side_of(work->source, work->nbytes), side_of(work->target, work->nbytes),
        work->nbytes, 1, 1};
    return SUCCESS;
}

static void *address_in(const struct side *side) {
    return side->place == 2 ? (void *)(uintptr_t)side->device : side->host;
}

/* Each side of a copy stays in memory of the same kind, and of the same device. */
static bool same_place(const void *old, const void *new) {
    const struct allocation *was = allocation_around(old), *is = allocation_around(new);
    bool was_host = !was || was->place == ON_HOST, is_host = !is || is->place == ON_HOST;
    return was_host || is_host ? was_host && is_host : was->device == is->device;
}

/* Where a node of a graph, or of a child graph in it, is in a copy of the graph. */
static struct node *counterpart(const struct graph *graph, const struct graph *copy, const struct node *node) {
    if (node->graph == graph) return copy->nodes.items[node->index];
    struct node *found = NULL;
    for (size_t i = 0; i < graph->nodes.count && !found; i++)
        if (graph->nodes.items[i]->child)
            found = counterpart(graph->nodes.items[i]->child, copy->nodes.items[i]->child, node);
    return found;
}

/* A node of an executable, by the node of the graph that it was made of. */
static struct node *any_node_in(const struct executable *executable, handle node) {
    struct node *original = handle_get(node, NODE);
    if (!executable || !original) return NULL;
    return counterpart(executable->source, executable->plan->graph, original);
}

static struct node *node_in(const struct executable *executable, handle node, enum work_kind kind) {
    struct node *found = any_node_in(executable, node);
    return found && found->work.kind == kind ? found : NULL;
}

/* Runs that have been launched keep the plan that they were launched with. */
static CUresult arrange_again(struct executable *executable) {
    struct plan *plan = plan_new(executable->plan->graph);
    plan_release(executable->plan);
    executable->plan = plan;
    return SUCCESS;
}

static CUresult replace(struct executable *executable, struct node *node, const struct work *work) {
    node->work = *work;
    return arrange_again(executable);
}

API(3, 0, cuGraphNodeSetEnabled, 11060, cuGraphNodeSetEnabled, handle, which, handle, node,
    unsigned, enabled) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct node *found = any_node_in(executable, node);
    if (!found || found->work.kind > WORK_FILL) return INVALID_VALUE;
    found->disabled = !enabled;
    return arrange_again(executable);
}

/* The function stays in its context; another one could be set. NVIDIA's driver 580 crashes if no context is
   current on the thread. */
API(3, 0, cuGraphExecKernelNodeSetParams, 12000, cuGraphExecKernelNodeSetParams_v2, handle, which, handle, node,
    const struct kernel_node_params *, wanted) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct node *kernel = node_in(executable, node, WORK_KERNEL);
    struct context *current;
    struct work work;
    if (!kernel) return INVALID_VALUE;
    if (context_current(&current)) {
        fputs("cuGraphExecKernelNodeSetParams without a current context\n", stderr);
        abort();
    }
    struct geometry geometry = {.shared = wanted->shared};
    memcpy(geometry.grid, wanted->grid, sizeof geometry.grid);
    memcpy(geometry.block, wanted->block, sizeof geometry.block);
    handle function = wanted->function ? wanted->function : wanted->kernel;
    TRY(kernel_work(function, &geometry, wanted->parameters, wanted->extra, &work));
    work.context = kernel->work.context;
    return replace(executable, kernel, &work);
}

/* Only one row, as the documentation says, in memory of the same device. */
API(4, 0, cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams, handle, which, handle, node,
    const struct fill *, wanted, handle, context) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct node *fill = node_in(executable, node, WORK_FILL);
    if (!fill || fill->work.context != context || wanted->height > 1) return INVALID_VALUE;
    if (!same_place(fill->work.fill.target, wanted->target)) return INVALID_VALUE;
    struct work work = fill->work;
    work.fill = *wanted;
    work.target = wanted->target;
    return replace(executable, fill, &work);
}

API(4, 0, cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams, handle, which, handle, node,
    const struct copy_params *, wanted, handle, context) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct node *copy = node_in(executable, node, WORK_COPY);
    void *source = address_in(&wanted->source), *target = address_in(&wanted->target);
    if (!copy || copy->work.context != context) return INVALID_VALUE;
    if (wanted->height != 1 || wanted->depth != 1) return INVALID_VALUE;
    if (!same_place(copy->work.source, source) || !same_place(copy->work.target, target)) return INVALID_VALUE;
    struct work work = copy->work;
    work.source = source;
    work.target = target;
    work.nbytes = wanted->width;
    return replace(executable, copy, &work);
}

/* The whole of a child graph becomes another one of the same shape. */
API(3, 0, cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams, handle, which,
    handle, node, handle, wanted) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct node *child = node_in(executable, node, WORK_CHILD);
    struct graph *graph = handle_get(wanted, GRAPH);
    if (!child || !graph) return INVALID_VALUE;
    if (!graph_fits(child->child, graph)) return UPDATE_FAILURE;
    graph_release(child->child);
    child->child = graph_copy(graph, false);
    return arrange_again(executable);
}

struct host_params {
    host_function function;
    void *data;
};

API(2, 0, cuGraphHostNodeGetParams, 10000, cuGraphHostNodeGetParams, handle, which,
    struct host_params *, answer) {
    const struct node *node = node_of(which, WORK_HOST);
    if (!node) return INVALID_VALUE;
    *answer = (struct host_params){node->work.host, node->work.data};
    return SUCCESS;
}

struct allocation_params {
    unsigned char properties[88];
    const void *access;
    size_t accesses, nbytes;
    uint64_t address;
};

API(2, 0, cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams, handle, which,
    struct allocation_params *, answer) {
    const struct node *node = node_of(which, WORK_ALLOC);
    if (!node) return INVALID_VALUE;
    *answer = (struct allocation_params){
        .nbytes = node->work.memory->nbytes, .address = (uint64_t)(uintptr_t)node->work.memory->address};
    return SUCCESS;
}

API(2, 0, cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams, handle, which,
    uint64_t *, answer) {
    const struct node *node = node_of(which, WORK_FREE);
    if (!node) return INVALID_VALUE;
    *answer = (uint64_t)(uintptr_t)node->work.memory->address;
    return SUCCESS;
}
