/* Looking into graphs: their nodes and edges, what a node does, and the text that draws them. */
#include <stdio.h>

#include "graphs.h"

/* ---- nodes and edges of a graph ------------------------------------------------------------------ */

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
    for (size_t i = found; from && i < *count; i++) {
        from[i] = to[i] = 0;
        if (data) data[i] = 0;
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

/* The nodes that a node depends on, or those that depend on it. */
static CUresult neighbours(handle which, bool before, handle *answer, uint64_t *data, size_t *count) {
    struct node *node = handle_get(which, NODE);
    size_t found = 0;
    if (!node) return INVALID_VALUE;
    const struct nodes *from = before ? &node->after : &node->graph->nodes;
    for (size_t i = 0; i < from->count; i++) {
        struct node *each = from->items[i];
        if (!before && !nodes_have(&each->after, node)) continue;
        if (answer && found < *count) answer[found] = each->handle;
        if (answer && data && found < *count) data[found] = 0;
        found++;
    }
    for (size_t i = found; answer && i < *count; i++) {
        answer[i] = 0;
        if (data) data[i] = 0;
    }
    if (!answer || found < *count) *count = found;
    return SUCCESS;
}

API(3, 0, cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies, handle, node, handle *, nodes,
    size_t *, count) {
    return neighbours(node, true, nodes, NULL, count);
}

API(4, 0, cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2, handle, node, handle *, nodes,
    uint64_t *, data, size_t *, count) {
    return neighbours(node, true, nodes, data, count);
}

API(3, 0, cuGraphNodeGetDependentNodes, 10000, cuGraphNodeGetDependentNodes, handle, node, handle *, nodes,
    size_t *, count) {
    return neighbours(node, false, nodes, NULL, count);
}

API(4, 0, cuGraphNodeGetDependentNodes, 12030, cuGraphNodeGetDependentNodes_v2, handle, node,
    handle *, nodes, uint64_t *, data, size_t *, count) {
    return neighbours(node, false, nodes, data, count);
}

/* ---- nodes --------------------------------------------------------------------------------------- */

API(2, 0, cuGraphNodeGetType, 10000, cuGraphNodeGetType, handle, which, int *, type) {
    struct node *node = handle_get(which, NODE);
    if (!node) return INVALID_VALUE;
    *type = node->work.kind;
    return SUCCESS;
}

API(2, 0, cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph, handle, which,
    handle *, answer) {
    struct node *node = handle_get(which, NODE);
    if (!node || !node->child) return INVALID_VALUE;
    *answer = node->child->handle;
    return SUCCESS;
}

/* The graph's id in the upper half, and in the lower one the node's own, which the nodes of an executable
 * have as well. */
API(2, 0, cuGraphNodeGetToolsId, 13010, cuGraphNodeGetToolsId, handle, which, uint64_t *, answer) {
    struct node *node = handle_get(which, NODE);
    if (!node) return INVALID_VALUE;
    *answer = (uint64_t)node->graph->id << 32;
    for (size_t i = 0; node->graph->nodes.items[i] != node; i++) ++*answer;
    return SUCCESS;
}

API(2, 0, cuGraphExecGetId, 13010, cuGraphExecGetId, handle, which, unsigned *, answer) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    if (!executable) return INVALID_VALUE;
    *answer = executable->plan->graph->id;
    return SUCCESS;
}

/* ---- a picture ----------------------------------------------------------------------------------- */

static const char *label(const struct node *node) {
    switch (node->work.kind) {
        case WORK_KERNEL: return node->work.native->name;
        case WORK_COPY: return "MEMCPY";
        case WORK_FILL: return "MEMSET";
        case WORK_HOST: return "HOST";
        case WORK_CHILD: return "GRAPH";
        case WORK_EVENT: return "EVENT_RECORD";
        case WORK_WAIT: return "WAIT_EVENT";
        case WORK_ALLOC: return "MEM_ALLOC";
        case WORK_FREE: return "MEM_FREE";
        case WORK_CONDITIONAL: return "CONDITIONAL";
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
