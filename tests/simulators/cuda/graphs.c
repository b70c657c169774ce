/* Graphs: nodes and what they depend on, how they are copied and how they go. */
#include <stdlib.h>

#include "graphs.h"

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

struct graph *graph_new(bool named) {
    static unsigned graphs;
    struct graph *graph = calloc(1, sizeof *graph);
    graph->id = ++graphs;
    if (named) graph->handle = handle_new(GRAPH, graph);
    graph->references = 1;
    return graph;
}

static bool is_memory(const struct work *work) { return work->kind == WORK_ALLOC || work->kind == WORK_FREE; }

struct node *graph_add(struct graph *graph, const struct work *work, const struct nodes *after) {
    struct node *node = calloc(1, sizeof *node);
    if (graph->handle) node->handle = handle_new(NODE, node);
    node->graph = graph;
    node->work = *work;
    node->index = graph->nodes.count;
    nodes_set(&node->after, after);
    nodes_add(&graph->nodes, node);
    if (is_memory(work)) {
        allocation_keep(work->memory);
        graph->allocates = graph->single = true;
    }
    graph->single |= work->kind == WORK_CONDITIONAL;
    return node;
}

struct graph *graph_copy(const struct graph *graph, bool named) {
    struct graph *copy = graph_new(named);
    copy->original = graph->handle;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        struct node *mine = graph_add(copy, &node->work, &(struct nodes){0});
        mine->original = node->handle;
        mine->disabled = node->disabled;
        memcpy(mine->cluster, node->cluster, sizeof mine->cluster);
        if (node->conditional) mine->conditional = conditional_copy(node->conditional, named);
        if (!node->child) continue;
        mine->child = graph_copy(node->child, named);
        mine->child->owned = true;
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct nodes *after = &graph->nodes.items[i]->after;
        for (size_t j = 0; j < after->count; j++)
            nodes_add(&copy->nodes.items[i]->after, copy->nodes.items[after->items[j]->index]);
    }
    return copy;
}

/* Whether every node is forgotten, one of `from`, or one that such a node depends on, however far away. */
bool graph_reaches_all(struct graph *graph, const struct nodes *from) {
    struct nodes reached = {0};
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        node->reached = node->forgotten;
        if (node->forgotten) nodes_add(&reached, node);
    }
    const struct nodes *next = from;
    for (size_t i = 0;; next = &reached.items[i++]->after) {
        for (size_t j = 0; j < next->count; j++) {
            struct node *node = next->items[j];
            if (!node->reached) nodes_add(&reached, node);
            node->reached = true;
        }
        if (i == reached.count) break;
    }
    nodes_free(&reached);
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (!graph->nodes.items[i]->reached) return false;
    return true;
}

void graph_forget_handles(struct graph *graph) {
    if (!graph->handle) return;
    handle_drop(graph->handle);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        struct node *node = graph->nodes.items[i];
        handle_drop(node->handle);
        if (node->child) graph_forget_handles(node->child);
        if (node->conditional) conditional_forget_handles(node->conditional);
    }
}

void graph_destroy(struct graph *graph) {
    if (graph->ruined) abort();
    graph_forget_handles(graph);
    graph_release(graph);
}

void graph_free_node(struct node *node) {
    if (is_memory(&node->work)) allocation_release(node->work.memory);
    if (node->child) graph_release(node->child);
    if (node->conditional) conditional_free(node->conditional);
    nodes_free(&node->after);
    free(node);
}

void graph_release(struct graph *graph) {
    if (--graph->references) return;
    for (size_t i = 0; i < graph->nodes.count; i++) graph_free_node(graph->nodes.items[i]);
    nodes_free(&graph->nodes);
    free(graph);
}

API(1, 0, cuGraphDestroy, 10000, cuGraphDestroy, handle, which) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph || graph->owned) return INVALID_VALUE;
    if (graph->capturing) return ILLEGAL_STATE;
    graph_destroy(graph);
    return SUCCESS;
}

API(2, 0, cuGraphClone, 10000, cuGraphClone, handle *, clone, handle, which) {
    struct graph *graph = handle_get(which, GRAPH);
    if (!graph) return INVALID_VALUE;
    if (graph->single) return NOT_SUPPORTED;
    *clone = graph_copy(graph, true)->handle;
    return SUCCESS;
}

API(3, 0, cuGraphNodeFindInClone, 10000, cuGraphNodeFindInClone, handle *, answer, handle, original,
    handle, which) {
    struct graph *clone = handle_get(which, GRAPH);
    struct node *node = handle_get(original, NODE);
    if (!clone || !node || clone->original != node->graph->handle) return INVALID_VALUE;
    for (size_t i = 0; i < clone->nodes.count; i++)
        if (clone->nodes.items[i]->original == original) {
            *answer = clone->nodes.items[i]->handle;
            return SUCCESS;
        }
    return INVALID_VALUE;
}
