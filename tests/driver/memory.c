/* Memory: the device's is the host's. What streams do with it, and host functions. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct allocation {
    char *address;
    size_t nbytes;
    struct context *context;
    bool alive;
    bool of_graph; /* the address lasts as long as a graph has it, whatever its runs allocate and free */
    bool buried;   /* no graph has it any more */
    struct allocation *next;
};

enum { ALIGNMENT = 256, JUNK = 0xA5 };

static const unsigned long long TOTAL = 1ULL << 36;
static struct allocation *allocations;

size_t allocations_live(void) {
    size_t count = 0;
    for (struct allocation *each = allocations; each; each = each->next) count += each->alive;
    return count;
}

static CUresult new(struct context *context, size_t nbytes, bool of_graph, struct allocation **answer) {
    if (!nbytes) return INVALID_VALUE;
    size_t whole = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *address = nbytes < TOTAL ? aligned_alloc(ALIGNMENT, whole) : NULL;
    if (!address) return OUT_OF_MEMORY;
    memset(address, JUNK, nbytes);
    struct allocation *allocation = calloc(1, sizeof *allocation);
    *allocation = (struct allocation){address, nbytes, context, !of_graph, of_graph, false, allocations};
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

/* Memory goes with its context; but what graphs have stays as long as they do. */
void allocations_forget_context(const struct context *context) {
    for (struct allocation *each = allocations, *next; each; each = next) {
        next = each->next;
        if (each->context != context) continue;
        each->context = NULL;
        if (each->of_graph) continue;
        free(each->address);
        forget(each);
    }
}

static void forget_of_graph(struct allocation *allocation) {
    free(allocation->address);
    forget(allocation);
}

void allocation_bury(struct allocation *allocation) {
    allocation->buried = true;
    if (!allocation->alive) forget_of_graph(allocation);
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
    allocation->alive = false;
    if (allocation->context) context_idle(allocation->context);
    if (allocation->of_graph) {
        if (allocation->buried) forget_of_graph(allocation);
        return SUCCESS;
    }
    forget(allocation);
    free(address);
    return SUCCESS;
}

API(2, 0, cuMemGetInfo, 3020, cuMemGetInfo_v2, size_t *, left, size_t *, total) {
    struct context *context;
    TRY(context_current(&context));
    *left = *total = TOTAL;
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->alive) *left -= each->nbytes;
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
        free(allocation->address);
        forget(allocation);
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
    struct work work = {.kind = WORK_FREE, .target = address};
    if (stream->capture) {
        if (!allocation->of_graph) return INVALID_VALUE;
        work.memory = allocation;
        return enqueue(which, &work);
    }
    if (!allocation->alive) return INVALID_VALUE;
    bool last = !allocation->of_graph || allocation->buried;
    work.memory = last ? NULL : allocation; /* which keeps the address */
    TRY(enqueue(which, &work));
    allocation->alive = false;
    if (last) forget(allocation);
    return SUCCESS;
}

/* ---- fill and copy ------------------------------------------------------------------------------- */

static struct work fill(void *target, unsigned value, size_t nbytes) {
    return (struct work){.kind = WORK_FILL, .target = target, .value = value, .nbytes = nbytes};
}

static struct work copy(void *target, const void *source, size_t nbytes) {
    return (struct work){.kind = WORK_COPY, .target = target, .source = (void *)source, .nbytes = nbytes};
}

API(4, 0, cuMemsetD8Async, 3020, cuMemsetD8Async, void *, target, unsigned char, value, size_t, nbytes,
    handle, stream) {
    struct work work = fill(target, value, nbytes);
    return enqueue(stream, &work);
}

API(4, 0, cuMemcpyAsync, 4000, cuMemcpyAsync, void *, target, const void *, source, size_t, nbytes,
    handle, stream) {
    struct work work = copy(target, source, nbytes);
    return enqueue(stream, &work);
}

API(3, 0, cuMemsetD8, 3020, cuMemsetD8_v2, void *, target, unsigned char, value, size_t, nbytes) {
    struct work work = fill(target, value, nbytes);
    return enqueue(LEGACY_STREAM, &work);
}

static CUresult copy_now(void *target, const void *source, size_t nbytes) {
    struct work work = copy(target, source, nbytes);
    struct stream *legacy;
    TRY(enqueue(LEGACY_STREAM, &work));
    TRY(stream_of(LEGACY_STREAM, &legacy));
    marker_wait(legacy->last);
    return SUCCESS;
}

API(3, 0, cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, void *, target, void *, source, size_t, nbytes) {
    return copy_now(target, source, nbytes);
}

API(3, 0, cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, void *, target, const void *, source, size_t, nbytes) {
    return copy_now(target, source, nbytes);
}

/* ---- host functions, and every kind of work ------------------------------------------------------ */

API(3, 0, cuLaunchHostFunc, 10000, cuLaunchHostFunc, handle, stream, host_function, function, void *, data) {
    struct work work = {.kind = WORK_HOST, .host = function, .data = data};
    return enqueue(stream, &work);
}

static void run_kernel(const struct work *work) {
    void *parameters[MOST_PARAMETERS];
    size_t offset = 0;
    for (unsigned i = 0; i < work->native->count; i++) {
        parameters[i] = (void *)(work->parameters + offset);
        offset += (work->native->sizes[i] + 15) / 16 * 16;
    }
    work->native->run(&work->geometry, parameters);
}

void work_run(const struct work *work) {
    switch (work->kind) {
        case WORK_KERNEL: run_kernel(work); break;
        case WORK_COPY: memmove(work->target, work->source, work->nbytes); break;
        case WORK_FILL: memset(work->target, (int)work->value, work->nbytes); break;
        case WORK_HOST: work->host(work->data); break;
        case WORK_FREE:
            if (!work->memory) free(work->target);
            break;
        case WORK_ALLOC:
        case WORK_EMPTY: break;
    }
}
