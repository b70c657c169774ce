/* Conditional nodes. No kernel of this driver can set a condition, so it has its default value in every run. */
#include <stdlib.h>

#include "graphs.h"

enum { ASSIGN_DEFAULT = 1 };

/* A handle is a number that is never used twice, and below it the value that the condition begins with. */
API(5, 0, cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate, uint64_t *, answer, handle,
    which, handle, context, unsigned, value, unsigned, flags) {
    static uint32_t last;
    if (!handle_get(which, GRAPH) || !handle_get(context, CONTEXT)) return INVALID_VALUE;
    if (flags & ~(unsigned)ASSIGN_DEFAULT) return INVALID_VALUE;
    *answer = (uint64_t)++last << 32 | (flags & ASSIGN_DEFAULT ? value : 0);
    return SUCCESS;
}

struct conditional *conditional_new(uint64_t condition, int type, unsigned count) {
    struct conditional *conditional = calloc(1, sizeof *conditional);
    *conditional = (struct conditional){condition, type, count, calloc(count, sizeof(struct graph *)),
        calloc(count, sizeof(handle))};
    return conditional;
}

static void put(struct conditional *conditional, unsigned index, struct graph *body) {
    body->owned = true;
    conditional->bodies[index] = body;
    conditional->handles[index] = body->handle;
}

struct conditional *conditional_copy(const struct conditional *conditional, bool named) {
    struct conditional *copy = conditional_new(conditional->condition, conditional->type, conditional->count);
    for (unsigned i = 0; i < copy->count; i++) put(copy, i, graph_copy(conditional->bodies[i], named));
    return copy;
}

void conditional_forget_handles(struct conditional *conditional) {
    for (unsigned i = 0; i < conditional->count; i++) graph_forget_handles(conditional->bodies[i]);
}

void conditional_free(struct conditional *conditional) {
    for (unsigned i = 0; i < conditional->count; i++) graph_release(conditional->bodies[i]);
    free(conditional->bodies);
    free(conditional->handles);
    free(conditional);
}

struct graph *conditional_taken(const struct conditional *conditional) {
    uint32_t value = (uint32_t)conditional->condition;
    unsigned body = conditional->type == SWITCH ? value : !value;
    return body < conditional->count ? conditional->bodies[body] : NULL;
}

/* ---- nodes --------------------------------------------------------------------------------------- */

struct node_params {
    int type, reserved[3];
    struct {
        uint64_t condition;
        int type;
        unsigned count;
        handle *bodies;
        handle context;
    } conditional;
    unsigned char more[256 - 48];
};

_Static_assert(sizeof(struct node_params) == 256, "as in the API");

static CUresult add(handle *answer, handle which, const handle *after, size_t count,
    struct node_params *params) {
    if (params->type != WORK_CONDITIONAL) return NOT_SUPPORTED;
    int type = params->conditional.type;
    unsigned bodies = params->conditional.count;
    bool fits = type == IF ? bodies == 1 || bodies == 2 : type == WHILE ? bodies == 1 : bodies > 0;
    if (type < IF || type > SWITCH || !fits || !handle_get(params->conditional.context, CONTEXT))
        return INVALID_VALUE;
    if (type == WHILE && (uint32_t)params->conditional.condition) return NOT_SUPPORTED; /* it would not end */
    struct work work = {.kind = WORK_CONDITIONAL, .context = params->conditional.context};
    TRY(graph_add_after(answer, which, after, count, &work, NULL));
    struct node *node = handle_get(*answer, NODE);
    node->conditional = conditional_new(params->conditional.condition, type, bodies);
    for (unsigned i = 0; i < bodies; i++) put(node->conditional, i, graph_new(true));
    params->conditional.bodies = node->conditional->handles;
    return SUCCESS;
}

API(5, 0, cuGraphAddNode, 12020, cuGraphAddNode, handle *, answer, handle, graph, const handle *, after,
    size_t, count, struct node_params *, params) {
    return add(answer, graph, after, count, params);
}

API(6, 0, cuGraphAddNode, 12030, cuGraphAddNode_v2, handle *, answer, handle, graph, const handle *, after,
    const uint64_t *, data, size_t, count, struct node_params *, params) {
    return no_data(data, count) ? add(answer, graph, after, count, params) : NOT_SUPPORTED;
}

API(2, 0, cuGraphNodeGetParams, 13020, cuGraphNodeGetParams, handle, which, struct node_params *, answer) {
    const struct node *node = handle_get(which, NODE);
    if (!node) return INVALID_VALUE;
    if (!node->conditional) return NOT_SUPPORTED;
    const struct conditional *conditional = node->conditional;
    *answer = (struct node_params){.type = WORK_CONDITIONAL,
        .conditional = {conditional->condition, conditional->type, conditional->count, conditional->handles,
            node->work.context}};
    return SUCCESS;
}
