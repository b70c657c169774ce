/* Executables: what a graph has to do, in an order of its own, and the runs of it. */
#include <stdlib.h>

#include "graphs.h"

enum { AUTO_FREE_ON_LAUNCH = 1, UPLOAD = 2, KNOWN_FLAGS = 15 };

void plan_run(struct plan *plan) {
    for (size_t i = 0; i < plan->count; i++) work_run(&plan->works[i]);
}

void plan_release(struct plan *plan) {
    if (--plan->references) return;
    graph_release(plan->graph);
    free(plan);
}

/* What runs where a node stands. */
static struct graph *inside_of(const struct node *node) {
    return node->conditional ? conditional_taken(node->conditional) : node->child;
}

static size_t works_in(const struct graph *graph) {
    size_t count = graph->nodes.count;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct graph *inside = inside_of(graph->nodes.items[i]);
        if (inside) count += works_in(inside);
    }
    return count;
}

/* Of the nodes that are ready the youngest comes first: as far from the order in which they were recorded
 * as their dependencies allow, so that a missing one shows. A graph inside stands where its node does.
 * Returns whether every node's turn comes. */
static bool arrange(struct plan *plan, struct graph *graph) {
    size_t total = graph->nodes.count, ready_count = 0, done = 0;
    bool whole = true;
    struct node **ready = calloc(total + 1, sizeof *ready);
    struct nodes *targets = calloc(total + 1, sizeof *targets);
    for (size_t i = 0; i < total; i++) {
        struct node *node = graph->nodes.items[i];
        node->waits = node->after.count;
        for (size_t j = 0; j < node->after.count; j++) nodes_add(&targets[node->after.items[j]->index], node);
        if (!node->waits) ready[ready_count++] = node;
    }
    while (ready_count) {
        struct node *node = ready[--ready_count];
        done++;
        plan->works[plan->count++] = node->disabled ? (struct work){.kind = WORK_EMPTY} : node->work;
        struct graph *inside = inside_of(node);
        if (inside) whole &= arrange(plan, inside);
        for (size_t i = 0; i < targets[node->index].count; i++) {
            struct node *target = targets[node->index].items[i];
            if (--target->waits == 0) ready[ready_count++] = target;
        }
    }
    for (size_t i = 0; i < total; i++) nodes_free(&targets[i]);
    free(ready);
    free(targets);
    return whole && done == total;
}

struct plan *plan_new(const struct graph *graph) {
    struct plan *plan = calloc(1, sizeof *plan + works_in(graph) * sizeof *plan->works);
    plan->references = 1;
    plan->graph = graph_copy(graph, false);
    if (arrange(plan, plan->graph)) return plan;
    plan_release(plan);
    return NULL;
}

/* ---- their life ---------------------------------------------------------------------------------- */

API(3, 0, cuGraphInstantiate, 11040, cuGraphInstantiateWithFlags, handle *, answer, handle, which,
    uint64_t, flags) {
    struct graph *graph = handle_get(which, GRAPH);
    struct context *context;
    TRY(context_current(&context));
    if (!graph || flags & ~(uint64_t)KNOWN_FLAGS) return INVALID_VALUE;
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (graph->single && graph->executables) return NOT_SUPPORTED;
    struct plan *plan = plan_new(graph);
    if (!plan) return INVALID_VALUE;
    struct executable *executable = calloc(1, sizeof *executable);
    executable->plan = plan;
    executable->source = graph;
    graph->executables++;
    graph->references++;
    executable->flags = flags & ~(uint64_t)UPLOAD;
    *answer = executable->handle = handle_new(EXECUTABLE, executable);
    return SUCCESS;
}

API(1, 0, cuGraphExecDestroy, 10000, cuGraphExecDestroy, handle, which) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    if (!executable) return INVALID_VALUE;
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    executable->source->executables--;
    graph_release(executable->source);
    plan_release(executable->plan);
    marker_release(executable->last);
    handle_drop(executable->handle);
    free(executable);
    return SUCCESS;
}

/* ---- their runs ----------------------------------------------------------------------------------- */

/* The memory that the graph allocates is there from now on, until it is trimmed. */
static void upload(struct executable *executable, struct stream *stream) {
    uint64_t nbytes[MOST_DEVICES] = {0};
    for (size_t i = 0; i < executable->plan->count; i++) {
        const struct work *work = &executable->plan->works[i];
        if (work->kind == WORK_ALLOC) nbytes[work->memory->device] += work->nbytes;
    }
    for (int device = 0; device < MOST_DEVICES; device++) graph_memory_need(device, nbytes[device]);
    submit(stream, NULL, NULL, NULL);
}

API(2, 0, cuGraphUpload, 11010, cuGraphUpload, handle, which, handle, where) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct stream *stream;
    if (!executable) return INVALID_VALUE;
    TRY(stream_not_capturing(where, &stream));
    upload(executable, stream);
    return SUCCESS;
}

/* The memory that a run allocates must not be there, unless what the last one left is freed first. */
static CUresult account(struct executable *executable) {
    struct plan *plan = executable->plan;
    for (size_t i = 0; i < plan->count && !(executable->flags & AUTO_FREE_ON_LAUNCH); i++)
        if (plan->works[i].kind == WORK_ALLOC && plan->works[i].memory->alive) return INVALID_VALUE;
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->works[i].kind == WORK_ALLOC) graph_memory_live(plan->works[i].memory, true);
        if (plan->works[i].kind == WORK_FREE) graph_memory_live(plan->works[i].memory, false);
        if (plan->works[i].kind == WORK_EVENT) event_expect(plan->works[i].event);
        if (plan->works[i].kind == WORK_WAIT) event_expect_wait(plan->works[i].event);
    }
    return SUCCESS;
}

API(2, 0, cuGraphLaunch, 10000, cuGraphLaunch, handle, which, handle, where) {
    struct executable *executable = handle_get(which, EXECUTABLE);
    struct stream *stream;
    if (!executable) return INVALID_VALUE;
    TRY(stream_not_capturing(where, &stream));
    TRY(account(executable));
    executable->plan->references++;
    struct marker *run = submit(stream, NULL, executable->plan, executable->last);
    marker_release(executable->last);
    executable->last = marker_keep(run);
    return SUCCESS;
}
