/* Memory: every allocation, and what is allocated and freed at once. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "streams.h"

enum { ALIGNMENT = 256, JUNK = 0xA5, MOST_JUNK = 1 << 26 };

static const size_t TOTAL = 1ULL << 36;
struct allocation *allocations;

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

CUresult allocation_new(
    struct context *context, size_t nbytes, enum place place, struct allocation **answer) {
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
                                      .place = place,
                                      .alive = true,
                                      .next = allocations};
    *answer = allocations = allocation;
    return SUCCESS;
}

static bool is_there(const struct allocation *allocation) { return allocation->alive || allocation->of_graph; }

struct allocation *allocation_at(const void *address) {
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->address == address && is_there(each)) return each;
    return NULL;
}

struct allocation *allocation_around(const void *address) {
    for (struct allocation *each = allocations; each; each = each->next)
        if (is_there(each) && (uintptr_t)address - (uintptr_t)each->address < each->nbytes) return each;
    return NULL;
}

static void forget(struct allocation *allocation) {
    struct allocation **place = &allocations;
    while (*place != allocation) place = &(*place)->next;
    *place = allocation->next;
    free(allocation->address);
    free(allocation);
}

void allocation_keep(struct allocation *allocation) { allocation->users++; }

void allocation_release(struct allocation *allocation) {
    if (--allocation->users == 0 && !allocation->alive) forget(allocation);
}

void allocation_end(struct allocation *allocation) {
    allocation->alive = false;
    if (!allocation->users) forget(allocation);
}

/* Memory goes with its context; but what graphs have stays as long as they do. */
void allocations_forget_context(const struct context *context) {
    for (struct allocation *each = allocations, *next; each; each = next) {
        next = each->next;
        if (each->context == context->handle && !each->of_graph) allocation_end(each);
    }
}

/* ---- the functions -------------------------------------------------------------------------------- */

static CUresult allocate(void **answer, size_t nbytes, enum place place) {
    struct context *context;
    struct allocation *allocation;
    TRY(context_current(&context));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    TRY(allocation_new(context, nbytes, place, &allocation));
    *answer = allocation->address;
    return SUCCESS;
}

static bool can_free(const void *address, bool on_host) {
    const struct allocation *allocation = allocation_at(address);
    return allocation && allocation->alive && (allocation->place == ON_HOST) == on_host;
}

static CUresult free_now(const void *address, bool on_host) {
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    if (!address) return on_host ? INVALID_VALUE : SUCCESS;
    if (!can_free(address, on_host)) return INVALID_VALUE;
    context_idle(allocation_at(address)->context);
    if (!can_free(address, on_host)) return INVALID_VALUE; /* while this waited it has gone */
    allocation_end(allocation_at(address));
    return SUCCESS;
}

API(2, 0, cuMemAlloc, 3020, cuMemAlloc_v2, void **, answer, size_t, nbytes) {
    return allocate(answer, nbytes, ON_DEVICE);
}

API(3, 0, cuMemAllocManaged, 6000, cuMemAllocManaged, void **, answer, size_t, nbytes, unsigned, flags) {
    enum { GLOBALLY = 1, BY_HOST = 2 };
    return flags == GLOBALLY || flags == BY_HOST ? allocate(answer, nbytes, MANAGED) : INVALID_VALUE;
}

API(1, 0, cuMemFree, 3020, cuMemFree_v2, void *, address) { return free_now(address, false); }

API(3, 0, cuMemHostAlloc, 2020, cuMemHostAlloc, void **, answer, size_t, nbytes, unsigned, flags) {
    enum { PORTABLE = 1, MAPPED = 2, WRITE_COMBINED = 4 };
    if (flags & ~(unsigned)(PORTABLE | MAPPED | WRITE_COMBINED)) return INVALID_VALUE;
    return allocate(answer, nbytes, ON_HOST);
}

API(1, 0, cuMemFreeHost, 2000, cuMemFreeHost, void *, address) { return free_now(address, true); }

API(2, 0, cuMemGetInfo, 3020, cuMemGetInfo_v2, size_t *, free_now, size_t *, total) {
    struct context *context;
    TRY(context_current(&context));
    *free_now = left();
    *total = TOTAL;
    return SUCCESS;
}

API(3, 0, cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, void **, base, size_t *, nbytes, const char *,
    address) {
    struct context *context;
    TRY(context_current(&context));
    const struct allocation *of = allocation_around(address);
    if (!of) return NOT_FOUND;
    if (base) *base = of->address;
    if (nbytes) *nbytes = of->nbytes;
    return SUCCESS;
}

/* Of all that an address says, its memory's type (device memory, for managed memory too, or none) and its
 * context. */
API(4, 0, cuPointerGetAttributes, 7000, cuPointerGetAttributes, unsigned, count, const int *, which,
    void **, answers, const char *, address) {
    enum { CONTEXT = 1, MEMORY_TYPE = 2, HOST_MEMORY = 1, DEVICE_MEMORY = 2 };
    struct context *context;
    TRY(context_current(&context));
    const struct allocation *of = allocation_around(address);
    for (unsigned i = 0; i < count; i++) {
        if (which[i] == MEMORY_TYPE) {
            *(unsigned *)answers[i] = !of ? 0 : of->place == ON_HOST ? HOST_MEMORY : DEVICE_MEMORY;
        } else if (which[i] == CONTEXT) {
            *(handle *)answers[i] = of ? of->context : 0;
        } else {
            count_unknown("an attribute of a pointer");
            return NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}
