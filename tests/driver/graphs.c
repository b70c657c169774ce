/* Graphs: nodes and what they depend on, and the functions that look into them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- arrays of nodes ----------------------------------------------------------------------------- */

void nodes_add(struct nodes *nodes, struct node *node) {
    if (nodes->count == nodes->capacity) {
        nodes->capacity = nodes->capacity ? 2 * nodes->capacity : 4;
        nodes->items = realloc(nodes->items, nodes->capacity * sizeof *nodes->items);
    }
    nodes->items[nodes->count++] = node;
}

bool nodes_have(const struct nodes *nodes, const struct node *node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->items[i] == node) return true;
    return false;
}

void nodes_set(struct nodes *nodes, const struct nodes *to) {
    nodes->count = 0;
    for (size_t i = 0; i < to->count; i++) nodes_add(nodes, to->items[i]);
}

void nodes_free(struct nodes *nodes) {
    free(nodes->items);
    *nodes = (struct nodes){0};
}

/* ---- graphs -------------------------------------------------------------------------------------- */

struct graph *graph_new(void) {
    struct graph *graph = calloc(1, sizeof *graph);
    graph->handle = handle_new(GRAPH, graph);
    graph->references = 1;
    return graph;
}

struct node *graph_add(struct graph *graph, const struct work *work, const struct nodes *after) {
    struct node *node = calloc(1, sizeof *node);
    node->handle = handle_new(NODE, node);
    node->work = *work;
    node->index = graph->nodes.count;
    nodes_set(&node->after, after);
    nodes_add(&graph->nodes, node);
    graph->allocates |= work->kind == WORK_ALLOC || work->kind == WORK_FREE;
    return node;
}

/* Whether every node is one of `from`, or one that those depend on, however far away. */
bool graph_reaches_all(struct graph *graph, const struct nodes *from) {
    size_t reached = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) graph->nodes.items[i]->reached = false;
    for (size_t i = 0; i < from->count; i++) from->items[i]->reached = true;
    for (size_t i = graph->nodes.count; i-- > 0;) { /* a node only depends on earlier ones */
        struct node *node = graph->nodes.items[i];
        if (!node->reached) continue;
        reached++;
        for (size_t j = 0; j < node->after.count; j++) node->after.items[j]->reached = true;
    }
    return reached == graph->nodes.count;
}

void graph_destroy(struct graph *graph) {
    handle_drop(graph->handle);
    for (size_t i = 0; i < graph->nodes.count; i++) handle_drop(graph->nodes.items[i]->handle);
    graph_release(graph);
}

void graph_release(struct graph *graph) {
    if (--graph->references) return;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        if (node->work.kind == WORK_ALLOC) allocation_bury(node->work.memory);
        nodes_free(&node->after);
        free(node);
    }
    nodes_free(&graph->nodes);
    free(graph);
}

API(1, 0, cuGraphDestroy, 10000, cuGraphDestroy, handle, which) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph) return INVALID_VALUE;
    graph_destroy(graph);
    return SUCCESS;
}

/* ---- looking into them --------------------------------------------------------------------------- */

static CUresult list(struct graph *graph, bool roots, handle *answer, size_t *count) {
    size_t found = 0;
    if (!graph) return INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        if (roots && node->after.count) continue;
        if (answer && found < *count) answer[found] = node->handle;
        found++;
    }
    for (size_t i = found; answer && i < *count; i++) answer[i] = 0;
    if (!answer || found < *count) *count = found;
    return SUCCESS;
}

API(3, 0, cuGraphGetNodes, 10000, cuGraphGetNodes, handle, graph, handle *, nodes, size_t *, count) {
    return list(handle_get(graph, GRAPH), false, nodes, count);
}

API(3, 0, cuGraphGetRootNodes, 10000, cuGraphGetRootNodes, handle, graph, handle *, nodes, size_t *, count) {
    return list(handle_get(graph, GRAPH), true, nodes, count);
}

static CUresult edges(struct graph *graph, handle *from, handle *to, uint64_t *data, size_t *count) {
    size_t found = 0;
    if (!graph) return INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        for (size_t j = 0; j < node->after.count; j++, found++) {
            if (!from || found >= *count) continue;
            from[found] = node->after.items[j]->handle;
            to[found] = node->handle;
            if (data) data[found] = 0;
        }
    }
    if (!from || found < *count) *count = found;
    return SUCCESS;
}

API(4, 0, cuGraphGetEdges, 10000, cuGraphGetEdges, handle, graph, handle *, from, handle *, to,
    size_t *, count) {
    return edges(handle_get(graph, GRAPH), from, to, NULL, count);
}

API(5, 0, cuGraphGetEdges, 12030, cuGraphGetEdges_v2, handle, graph, handle *, from, handle *, to,
    uint64_t *, data, size_t *, count) {
    return edges(handle_get(graph, GRAPH), from, to, data, count);
}

API(2, 0, cuGraphNodeGetType, 10000, cuGraphNodeGetType, handle, which, int *, type) {
    struct node *node = handle_get(which, NODE);
    if (!node) return INVALID_VALUE;
    *type = node->work.kind;
    return SUCCESS;
}

struct kernel_node_params {
    handle function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    handle kernel, context;
};

API(2, 0, cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2, handle, which,
    struct kernel_node_params *, answer) {
    struct node *node = handle_get(which, NODE);
    if (!node || node->work.kind != WORK_KERNEL) return INVALID_VALUE;
    const struct work *work = &node->work;
    *answer = (struct kernel_node_params){.shared = work->geometry.shared};
    memcpy(answer->grid, work->geometry.grid, sizeof answer->grid);
    memcpy(answer->block, work->geometry.block, sizeof answer->block);
    *(handle_is(work->function, KERNEL) ? &answer->kernel : &answer->function) = work->function;
    return SUCCESS;
}

static const char *label(const struct node *node) {
    switch (node->work.kind) {
        case WORK_KERNEL: return node->work.native->name;
        case WORK_COPY: return "MEMCPY";
        case WORK_FILL: return "MEMSET";
        case WORK_HOST: return "HOST";
        case WORK_ALLOC: return "MEM_ALLOC";
        case WORK_FREE: return "MEM_FREE";
        default: return "EMPTY";
    }
}

API(3, 0, cuGraphDebugDotPrint, 11030, cuGraphDebugDotPrint, handle, which, const char *, path,
    unsigned, flags) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph) return INVALID_VALUE;
    FILE *file = fopen(path, "w");
    if (!file) return OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        fprintf(file, "\"node_%zu\" [label=\"%zu %s", i, i, label(node));
        if (flags & 1) fprintf(file, " %zu bytes to %p", node->work.nbytes, node->work.target);
        fprintf(file, "\"];\n");
        for (size_t j = 0; j < node->after.count; j++)
            fprintf(file, "\"node_%zu\" -> \"node_%zu\";\n", node->after.items[j]->index, i);
    }
    fprintf(file, "}\n");
    return fclose(file) ? OPERATING_SYSTEM : SUCCESS;
}
