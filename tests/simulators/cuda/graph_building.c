/* Graphs that are built by hand. */
#include <stdlib.h>

#include "graphs.h"

API(2, 0, cuGraphCreate, 10000, cuGraphCreate, handle *, answer, unsigned, flags) {
    if (flags) return INVALID_VALUE;
    *answer = graph_new(true)->handle;
    return SUCCESS;
}

/* The data of edges is for programmatic launches, which this driver doesn't have. */
bool no_data(const uint64_t *data, size_t count) {
    for (size_t i = 0; data && i < count; i++)
        if (data[i]) return false;
    return true;
}

/* The nodes of those handles: all of one graph, and none twice. */
bool graph_nodes(const struct graph *graph, const handle *handles, size_t count, struct nodes *nodes) {
    if (count && !handles) return false;
    for (size_t i = 0; i < count; i++) {
        struct node *node = handle_get(handles[i], NODE);
        if (!node || node->graph != graph || nodes_have(nodes, node)) return false;
        nodes_add(nodes, node);
    }
    return true;
}

CUresult graph_add_after(handle *answer, handle which, const handle *after, size_t count,
    const struct work *work, struct graph *child) {
    struct graph *graph = handle_get(which, GRAPH);
    struct nodes nodes = {0};
    bool good = graph && graph_nodes(graph, after, count, &nodes);
    if (good) {
        struct node *node = graph_add(graph, work, &nodes);
        node->child = child;
        *answer = node->handle;
    }
    nodes_free(&nodes);
    return good ? SUCCESS : INVALID_VALUE;
}

API(4, 0, cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count) {
    return graph_add_after(answer, graph, after, count, &(struct work){.kind = WORK_EMPTY}, NULL);
}

API(5, 0, cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, handle, event) {
    if (!event_known(event)) return INVALID_VALUE;
    return graph_add_after(answer, graph, after, count, &(struct work){.kind = WORK_EVENT, .event = event}, NULL);
}

API(5, 0, cuGraphAddEventWaitNode, 11010, cuGraphAddEventWaitNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, handle, event) {
    if (!event_known(event)) return INVALID_VALUE;
    return graph_add_after(answer, graph, after, count, &(struct work){.kind = WORK_WAIT, .event = event}, NULL);
}

/* The node has a copy of the graph, which goes with it. */
API(5, 0, cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, handle, which) {
    struct graph *original = handle_get(which, GRAPH);
    if (!original) return INVALID_VALUE;
    if (original->single) return NOT_SUPPORTED;
    struct graph *child = graph_copy(original, true);
    struct work work = {.kind = WORK_CHILD};
    CUresult code = graph_add_after(answer, graph, after, count, &work, child);
    if (code == SUCCESS)
        child->owned = true;
    else
        graph_destroy(child);
    return code;
}

static void remove_from(struct nodes *nodes, const struct node *node) {
    size_t kept = 0;
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->items[i] != node) nodes->items[kept++] = nodes->items[i];
    nodes->count = kept;
}

API(1, 0, cuGraphDestroyNode, 10000, cuGraphDestroyNode, handle, which) {
    struct node *node = handle_get(which, NODE);
    if (!node || node->graph->capturing) return INVALID_VALUE;
    struct graph *graph = node->graph;
    if (graph->allocates) return NOT_SUPPORTED;
    remove_from(&graph->nodes, node);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        graph->nodes.items[i]->index = i;
        remove_from(&graph->nodes.items[i]->after, node);
    }
    handle_drop(which);
    if (node->child) graph_forget_handles(node->child);
    if (node->conditional) conditional_forget_handles(node->conditional);
    graph_free_node(node);
    return SUCCESS;
}

static CUresult connect(handle which, const handle *from, const handle *to, size_t count) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph || (count && (!from || !to))) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) { /* all or none */
        struct node *before = handle_get(from[i], NODE), *after = handle_get(to[i], NODE);
        if (!before || !after || before == after || before->graph != graph || after->graph != graph)
            return INVALID_VALUE;
        if (nodes_have(&after->after, before)) return INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (from[j] == from[i] && to[j] == to[i]) return INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        nodes_add(&((struct node *)handle_get(to[i], NODE))->after, handle_get(from[i], NODE));
    return SUCCESS;
}

API(4, 0, cuGraphAddDependencies, 10000, cuGraphAddDependencies, handle, graph, const handle *, from,
    const handle *, to, size_t, count) {
    return connect(graph, from, to, count);
}

API(5, 0, cuGraphAddDependencies, 12030, cuGraphAddDependencies_v2, handle, graph, const handle *, from,
    const handle *, to, const uint64_t *, data, size_t, count) {
    return no_data(data, count) ? connect(graph, from, to, count) : NOT_SUPPORTED;
}

static CUresult disconnect(handle which, const handle *from, const handle *to, size_t count) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph || (count && (!from || !to))) return INVALID_VALUE;
    if (graph->allocates) return NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) { /* all or none */
        struct node *before = handle_get(from[i], NODE), *after = handle_get(to[i], NODE);
        if (!before || !after || after->graph != graph || !nodes_have(&after->after, before))
            return INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        remove_from(&((struct node *)handle_get(to[i], NODE))->after, handle_get(from[i], NODE));
    return SUCCESS;
}

API(4, 0, cuGraphRemoveDependencies, 10000, cuGraphRemoveDependencies, handle, graph, const handle *, from,
    const handle *, to, size_t, count) {
    return disconnect(graph, from, to, count);
}

API(5, 0, cuGraphRemoveDependencies, 12030, cuGraphRemoveDependencies_v2, handle, graph, const handle *, from,
    const handle *, to, const uint64_t *, data, size_t, count) {
    return no_data(data, count) ? disconnect(graph, from, to, count) : NOT_SUPPORTED;
}
