/* Updating an executable with a graph of the same shape, by the documentation of cuGraphExecUpdate and as an
 * H200 with driver 580 answers (test_graph_rules.py). */
#include <stdlib.h>

#include "graphs.h"

enum result { UPDATED = 0, ERROR = 1, TOPOLOGY_CHANGED = 2, TYPE_CHANGED = 3, PARAMETERS_CHANGED = 5,
    FUNCTION_CHANGED = 7 };

struct result_info {
    int result;
    handle node, from;
};

static bool refuse(struct result_info *info, enum result result, const struct node *node,
    const struct node *from) {
    *info = (struct result_info){(int)result, node ? node->handle : 0, from ? from->handle : 0};
    return false;
}

/* Nodes that no other depends on, in the order in which they were added. */
static void list_exits(struct graph *graph, struct nodes *exits) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        graph->nodes.items[i]->pair = NULL;
        graph->nodes.items[i]->reached = false;
    }
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct nodes *after = &graph->nodes.items[i]->after;
        for (size_t j = 0; j < after->count; j++) after->items[j]->reached = true;
    }
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (!graph->nodes.items[i]->reached) nodes_add(exits, graph->nodes.items[i]);
}

static bool same_shape(struct graph *old, struct graph *new, struct result_info *info);

/* One row may become any other, of elements of any size. */
static bool same_fill(const struct fill *old, const struct fill *new) {
    if (old->height == 1 && new->height == 1) return true;
    return old->element == new->element && old->width == new->width && old->height == new->height &&
           old->pitch == new->pitch;
}

/* What fills such memory can't be updated. */
static bool of_graph(const void *address) {
    const struct allocation *allocation = allocation_around(address);
    return allocation && allocation->of_graph;
}

static bool same_bodies(const struct conditional *old, const struct conditional *new, struct result_info *info) {
    if (old->type != new->type || old->count != new->count) return refuse(info, PARAMETERS_CHANGED, NULL, NULL);
    for (unsigned i = 0; i < new->count; i++)
        if (!same_shape(old->bodies[i], new->bodies[i], info)) return false;
    return true;
}

static bool same_kind(struct node *old, struct node *new, struct result_info *info) {
    const struct work *was = &old->work, *is = &new->work;
    bool same = was->context == is->context;
    if (was->kind != is->kind) return refuse(info, TYPE_CHANGED, new, NULL);
    switch (is->kind) {
        case WORK_KERNEL: return same || refuse(info, FUNCTION_CHANGED, new, NULL);
        case WORK_FILL:
            if (of_graph(is->fill.target)) return refuse(info, ERROR, new, NULL);
            same = same && same_fill(&was->fill, &is->fill);
            break;
        case WORK_ALLOC:
        case WORK_COPY:
        case WORK_FREE: break;
        case WORK_CHILD: return same_shape(old->child, new->child, info);
        case WORK_CONDITIONAL: return same_bodies(old->conditional, new->conditional, info);
        default: return true;
    }
    return same || refuse(info, PARAMETERS_CHANGED, new, NULL);
}

/* Pair the nodes, from the exits on, by the order of their edges. */
static bool pair_all(const struct nodes *old_exits, const struct nodes *new_exits, struct nodes *pairs,
    struct result_info *info) {
    if (new_exits->count > old_exits->count)
        return refuse(info, TOPOLOGY_CHANGED, new_exits->items[old_exits->count], NULL);
    if (new_exits->count < old_exits->count) return refuse(info, TOPOLOGY_CHANGED, NULL, NULL);
    for (size_t i = 0; i < new_exits->count; i++) {
        new_exits->items[i]->pair = old_exits->items[i];
        old_exits->items[i]->pair = new_exits->items[i];
        nodes_add(pairs, new_exits->items[i]);
    }
    for (size_t i = 0; i < pairs->count; i++) {
        struct node *new = pairs->items[i], *old = new->pair;
        if (!same_kind(old, new, info)) return false;
        if (old->after.count != new->after.count) return refuse(info, TOPOLOGY_CHANGED, new, NULL);
        for (size_t j = 0; j < new->after.count; j++) {
            struct node *before = new->after.items[j], *was = old->after.items[j];
            if (before->pair != was && (before->pair || was->pair))
                return refuse(info, TOPOLOGY_CHANGED, new, before);
            if (!before->pair) nodes_add(pairs, before);
            before->pair = was;
            was->pair = before;
        }
    }
    return true;
}

static bool same_shape(struct graph *old, struct graph *new, struct result_info *info) {
    struct nodes old_exits = {0}, new_exits = {0}, pairs = {0};
    if (old->nodes.count != new->nodes.count) return refuse(info, TOPOLOGY_CHANGED, NULL, NULL);
    list_exits(old, &old_exits);
    list_exits(new, &new_exits);
    bool same = pair_all(&old_exits, &new_exits, &pairs, info);
    if (same && pairs.count < new->nodes.count) same = refuse(info, TOPOLOGY_CHANGED, NULL, NULL);
    nodes_free(&old_exits);
    nodes_free(&new_exits);
    nodes_free(&pairs);
    return same;
}

bool graph_fits(struct graph *old, struct graph *new) { return same_shape(old, new, &(struct result_info){0}); }

/* Runs that have been launched keep the plan that they were launched with. */
static CUresult update(handle which, handle with, struct result_info *info) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct graph *graph = handle_get(with, GRAPH);
    *info = (struct result_info){UPDATED, 0, 0};
    if (!executable || !graph) return INVALID_VALUE;
    if (!same_shape(executable->plan->graph, graph, info)) return UPDATE_FAILURE;
    struct plan *plan = plan_new(graph);
    if (!plan) {
        refuse(info, ERROR, NULL, NULL);
        return UPDATE_FAILURE;
    }
    plan_release(executable->plan);
    executable->plan = plan;
    return SUCCESS;
}

API(4, 0, cuGraphExecUpdate, 10020, cuGraphExecUpdate, handle, executable, handle, graph, handle *, node,
    int *, result) {
    struct result_info info;
    CUresult code = update(executable, graph, &info);
    if (node) *node = info.node;
    if (result) *result = info.result;
    return code;
}

API(3, 0, cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2, handle, executable, handle, graph,
    struct result_info *, answer) {
    return update(executable, graph, answer);
}
