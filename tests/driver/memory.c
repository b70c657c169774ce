/* Memory: the device's is the host's. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct allocation {
    char *address;
    size_t nbytes;
    handle context;
    int device;
    bool alive;
    bool of_graph;   /* the address lasts as long as nodes have it, whatever runs allocate and free */
    size_t users;    /* nodes that allocate or free it, and frees that streams have not come to */
    unsigned mapped; /* by executables */
    struct allocation *next;
};

enum { ALIGNMENT = 256, JUNK = 0xA5, MOST_JUNK = 1 << 26 };

static const unsigned long long TOTAL = 1ULL << 36;
static struct allocation *allocations;

size_t allocations_live(void) {
    size_t count = 0;
    for (struct allocation *each = allocations; each; each = each->next) count += each->alive;
    return count;
}

static size_t left(void) {
    size_t used = 0;
    for (struct allocation *each = allocations; each; each = each->next) used += each->alive ? each->nbytes : 0;
    return used < TOTAL ? TOTAL - used : 0;
}

static CUresult new(struct context *context, size_t nbytes, bool of_graph, struct allocation **answer) {
    if (!nbytes) return INVALID_VALUE;
    size_t whole = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *address = nbytes < left() ? aligned_alloc(ALIGNMENT, whole) : NULL;
    if (!address) return OUT_OF_MEMORY;
    memset(address, JUNK, nbytes < MOST_JUNK ? nbytes : MOST_JUNK);
    struct allocation *allocation = calloc(1, sizeof *allocation);
    *allocation = (struct allocation){.address = address,
                                      .nbytes = nbytes,
                                      .context = context->handle,
                                      .device = context->device,
                                      .alive = !of_graph,
                                      .of_graph = of_graph,
                                      .next = allocations};
    *answer = allocations = allocation;
    return SUCCESS;
}

static struct allocation *find(const void *address) {
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->address == address && (each->alive || each->of_graph)) return each;
    return NULL;
}

static void forget(struct allocation *allocation) {
    struct allocation **place = &allocations;
    while (*place != allocation) place = &(*place)->next;
    *place = allocation->next;
    free(allocation);
}

static void forget_with_memory(struct allocation *allocation) {
    free(allocation->address);
    forget(allocation);
}

/* Memory goes with its context; but what graphs have stays as long as they do. */
void allocations_forget_context(const struct context *context) {
    for (struct allocation *each = allocations, *next; each; each = next) {
        next = each->next;
        if (each->context != context->handle || each->of_graph) continue;
        each->alive = false;
        if (!each->users) forget_with_memory(each);
    }
}

void allocation_keep(struct allocation *allocation) { allocation->users++; }

void allocation_release(struct allocation *allocation) {
    if (--allocation->users == 0 && !allocation->alive) forget_with_memory(allocation);
}

void allocation_map(struct allocation *allocation, bool mapped) {
    allocation->mapped += mapped ? 1u : -1u;
    if (mapped) graph_memory_used(allocation->device);
}

size_t allocations_mapped(int device) {
    size_t nbytes = 0;
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->of_graph && each->device == device && (each->mapped || each->alive)) nbytes += each->nbytes;
    return nbytes;
}

bool allocation_can_live(struct allocation *allocation, bool freed_first) {
    return !allocation->alive || freed_first;
}

void allocation_live(struct allocation *allocation, bool alive) { allocation->alive = alive; }

API(2, 0, cuMemAlloc, 3020, cuMemAlloc_v2, void **, answer, size_t, nbytes) {
    struct context *context;
    struct allocation *allocation;
    TRY(context_current(&context));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    TRY(new(context, nbytes, false, &allocation));
    *answer = allocation->address;
    return SUCCESS;
}

API(1, 0, cuMemFree, 3020, cuMemFree_v2, void *, address) {
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (!address) return SUCCESS;
    struct allocation *allocation = find(address);
    if (!allocation || !allocation->alive) return INVALID_VALUE;
    context_idle(allocation->context);
    allocation = find(address); /* while this waited it may have gone */
    if (!allocation || !allocation->alive) return INVALID_VALUE;
    allocation->alive = false;
    if (!allocation->users) forget_with_memory(allocation);
    return SUCCESS;
}

API(2, 0, cuMemGetInfo, 3020, cuMemGetInfo_v2, size_t *, free_now, size_t *, total) {
    struct context *context;
    TRY(context_current(&context));
    *free_now = left();
    *total = TOTAL;
    return SUCCESS;
}

API(3, 0, cuMemAllocAsync, 11020, cuMemAllocAsync, void **, answer, size_t, nbytes, handle, which) {
    struct stream *stream;
    struct allocation *allocation;
    TRY(stream_of(which, &stream));
    if (!stream->capture && capture_forbids()) return CAPTURE_UNSUPPORTED;
    bool recorded = stream->capture && stream->capture->status == CAPTURE_ACTIVE;
    TRY(new(stream->context, nbytes, recorded, &allocation));
    struct work work = {.kind = WORK_ALLOC, .memory = allocation, .target = allocation->address,
        .nbytes = nbytes};
    CUresult code = enqueue(which, &work);
    if (code != SUCCESS) {
        forget_with_memory(allocation);
        return code;
    }
    *answer = allocation->address;
    return SUCCESS;
}

API(2, 0, cuMemFreeAsync, 11020, cuMemFreeAsync, void *, address, handle, which) {
    struct stream *stream;
    struct allocation *allocation = find(address);
    TRY(stream_of(which, &stream));
    if (!stream->capture && capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (!allocation) return INVALID_VALUE;
    struct work work = {.kind = WORK_FREE, .target = address, .memory = allocation};
    if (stream->capture) return allocation->of_graph ? enqueue(which, &work) : INVALID_VALUE;
    if (!allocation->alive) return INVALID_VALUE;
    TRY(enqueue(which, &work));
    allocation_keep(allocation); /* until the stream has come so far */
    allocation->alive = false;
    return SUCCESS;
}
