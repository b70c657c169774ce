/* Graphs that are built by hand. */
#include <stdlib.h>

#include "graphs.h"

API(2, 0, cuGraphCreate, 10000, cuGraphCreate, handle *, answer, unsigned, flags) {
    if (flags) return INVALID_VALUE;
    *answer = graph_new(true)->handle;
    return SUCCESS;
}

/* The nodes of those handles: all of one graph, and none twice. */
static bool find(const struct graph *graph, const handle *handles, size_t count, struct nodes *nodes) {
    for (size_t i = 0; i < count; i++) {
        struct node *node = handle_get(handles[i], NODE);
        if (!node || node->graph != graph || nodes_have(nodes, node)) return false;
        nodes_add(nodes, node);
    }
    return true;
}

static CUresult add(handle *answer, handle which, const handle *after, size_t count,
    const struct work *work, struct graph *child) {
    struct graph *graph = handle_get(which, GRAPH);
    struct nodes nodes = {0};
    bool good = graph && (after || !count) && find(graph, after, count, &nodes);
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
    return add(answer, graph, after, count, &(struct work){.kind = WORK_EMPTY}, NULL);
}

API(6, 0, cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, const struct fill *, fill, handle, context) {
    struct work work;
    if (!handle_get(context, CONTEXT)) return INVALID_CONTEXT;
    if (!fill || !work_fill(&work, fill)) return INVALID_VALUE;
    work.context = context;
    return add(answer, graph, after, count, &work, NULL);
}

/* The node has a copy of the graph, which goes with it. */
API(5, 0, cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode, handle *, answer, handle, graph,
    const handle *, after, size_t, count, handle, which) {
    struct graph *original = handle_get(which, GRAPH);
    if (!original) return INVALID_VALUE;
    if (original->allocates) return NOT_SUPPORTED;
    struct graph *child = graph_copy(original, true);
    CUresult code = add(answer, graph, after, count, &(struct work){.kind = WORK_CHILD}, child);
    if (code == SUCCESS)
        child->owned = true;
    else
        graph_destroy(child);
    return code;
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
    for (size_t i = 0; data && i < count; i++)
        if (data[i]) return NOT_SUPPORTED; /* programmatic launches */
    return connect(graph, from, to, count);
}
