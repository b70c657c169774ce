/* Conditional nodes. Which body runs is decided when a run gets there. */
#include <stdlib.h>

#include "graphs.h"

enum { ASSIGN_DEFAULT = 1, MOST_CONDITIONS = 1 << 16 };

static struct condition {
    unsigned root; /* the graph that it was made for, or the one that this is a body in */
    bool used, has_default;
    uint32_t initial;
    volatile uint32_t value, tested;
} conditions[MOST_CONDITIONS];
static uint32_t last;

static struct condition *condition_of(uint64_t condition) {
    return &conditions[(condition >> 32) % MOST_CONDITIONS];
}

static unsigned root_of(const struct graph *graph) {
    while (graph->around) graph = graph->around;
    return graph->id;
}

bool conditions_used(const struct graph *graph) {
    for (uint32_t i = 1; i <= last && i < MOST_CONDITIONS; i++)
        if (conditions[i].root == graph->id && !conditions[i].used) return false;
    return true;
}

void condition_set(uint64_t condition, unsigned value) { condition_of(condition)->value = value; }

void condition_begin(uint64_t which) {
    struct condition *condition = condition_of(which);
    if (condition->has_default) condition->value = condition->initial;
}

void condition_test(uint64_t which) {
    struct condition *condition = condition_of(which);
    condition->tested = condition->value;
}

bool condition_takes(const struct work *body) {
    uint32_t value = condition_of(body->condition)->tested;
    return body->type == SWITCH ? value == body->branch : body->branch ? !value : value;
}

/* A handle is a number that is never used twice, and below it the value that the condition begins with. */
API(5, 0, cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate, uint64_t *, answer, handle,
    which, handle, context, unsigned, value, unsigned, flags) {
    const struct graph *graph = handle_get(which, GRAPH);
    if (!handle_get(which, GRAPH) || !handle_get(context, CONTEXT)) return INVALID_VALUE;
    if (flags & ~(unsigned)ASSIGN_DEFAULT) return INVALID_VALUE;
    *answer = (uint64_t)++last << 32 | (flags & ASSIGN_DEFAULT ? value : 0);
    *condition_of(*answer) =
        (struct condition){.root = root_of(graph), .has_default = flags & ASSIGN_DEFAULT, .initial = value};
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
    const struct graph *graph = handle_get(which, GRAPH);
    struct condition *condition = condition_of(params->conditional.condition);
    if (!graph || condition->root != root_of(graph) || condition->used) return INVALID_VALUE;
    struct work work = {.kind = WORK_CONDITIONAL,
        .context = params->conditional.context,
        .condition = params->conditional.condition};
    TRY(graph_add_after(answer, which, after, count, &work, NULL));
    struct node *node = handle_get(*answer, NODE);
    node->conditional = conditional_new(params->conditional.condition, type, bodies);
    condition->used = true;
    for (unsigned i = 0; i < bodies; i++) {
        put(node->conditional, i, graph_new(true));
        node->conditional->bodies[i]->around = graph;
    }
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
