/* Executables: what a graph has to do, in an order of its own, and the runs of it. */
#include <stdlib.h>

#include "graphs.h"

enum { AUTO_FREE_ON_LAUNCH = 1, UPLOAD = 2, KNOWN_FLAGS = 15 };

void plan_run(struct plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->works[i].kind == WORK_CONDITIONAL) condition_begin(plan->works[i].condition);
    for (size_t i = 0; i < plan->count;) {
        const struct work *work = &plan->works[i++];
        if (work->kind == WORK_CONDITIONAL) condition_test(work->condition);
        if (work->kind == WORK_BODY && !condition_takes(work)) i = work->jump;
        if (work->kind == WORK_BODY_END && work->type == WHILE) {
            condition_test(work->condition);
            i = work->jump;
        }
        work_run(work);
    }
}

void plan_release(struct plan *plan) {
    if (--plan->references) return;
    graph_release(plan->graph);
    free(plan);
}

static size_t works_in(const struct graph *graph) {
    size_t count = graph->nodes.count;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        if (node->child) count += works_in(node->child);
        for (unsigned j = 0; node->conditional && j < node->conditional->count; j++)
            count += 2 + works_in(node->conditional->bodies[j]);
    }
    return count;
}

static bool arrange(struct plan *plan, struct graph *graph);

/* The bodies of a node, each between a work that leaves it out and one that may go back to that. */
static bool arrange_bodies(struct plan *plan, const struct node *node) {
    const struct conditional *conditional = node->conditional;
    bool whole = true;
    for (unsigned i = 0; i < conditional->count; i++) {
        size_t begin = plan->count++;
        whole &= arrange(plan, conditional->bodies[i]);
        size_t end = plan->count++;
        struct work body = {.condition = conditional->condition, .type = conditional->type, .branch = i};
        plan->works[begin] = plan->works[end] = body;
        plan->works[begin].kind = WORK_BODY;
        plan->works[begin].jump = end + 1;
        plan->works[end].kind = WORK_BODY_END;
        plan->works[end].jump = begin;
    }
    return whole;
}

static bool copies_pageable(const struct work *work) {
    const struct allocation *target = allocation_around(work->target);
    return target && target->place != ON_HOST && !allocation_around(work->source);
}

/* Whether the device can run this as a body: it can't go back to the host, nor allocate. */
static bool can_be_body(const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct node *node = graph->nodes.items[i];
        switch (node->work.kind) {
            case WORK_HOST:
            case WORK_EVENT:
            case WORK_WAIT:
            case WORK_ALLOC:
            case WORK_FREE: return false;
            case WORK_COPY:
                if (copies_pageable(&node->work)) return false;
                break;
            default: break;
        }
        if (node->child && !can_be_body(node->child)) return false;
    }
    return true;
}

static bool can_run(const struct graph *graph) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct conditional *conditional = graph->nodes.items[i]->conditional;
        for (unsigned j = 0; conditional && j < conditional->count; j++)
            if (!can_be_body(conditional->bodies[j]) || !can_run(conditional->bodies[j])) return false;
    }
    return true;
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
        if (node->child) whole &= arrange(plan, node->child);
        if (node->conditional && !node->disabled) whole &= arrange_bodies(plan, node);
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
    if (!conditions_used(graph) || !can_run(graph)) return INVALID_VALUE;
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
