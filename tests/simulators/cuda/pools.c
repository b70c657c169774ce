/* Pools of memory for allocations in the order of a stream. */
#include <stdlib.h>

#include "streams.h"

enum { REUSE_FIRST = 1, REUSE_LAST = 3, RELEASE_THRESHOLD = 4, RESERVED_NOW = 5, RESERVED_MOST = 6,
    USED_NOW = 7, USED_MOST = 8 };

struct pool {
    handle handle;
    int device;
    size_t references; /* the handle's and the allocations' */
    int reuse[REUSE_LAST + 1];
    uint64_t threshold;
    struct amounts amounts;
};

static struct pool *defaults[MOST_DEVICES];

static struct pool *new(enum kind kind, int device) {
    struct pool *pool = calloc(1, sizeof *pool);
    *pool = (struct pool){.device = device, .references = 1, .reuse = {[1] = 1, 1, 1}};
    pool->handle = handle_new(kind, pool);
    return pool;
}

static void release(struct pool *pool) {
    if (--pool->references == 0) free(pool);
}

CUresult pool_of(handle which, struct pool **pool) {
    *pool = handle_get(which, handle_is(which, DEFAULT_POOL) ? DEFAULT_POOL : POOL);
    return *pool ? SUCCESS : INVALID_VALUE;
}

CUresult pool_of_device(int device, struct pool **pool) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (!defaults[device]) defaults[device] = new(DEFAULT_POOL, device);
    *pool = defaults[device];
    return SUCCESS;
}

static void count(struct pool *pool) {
    uint64_t used = 0;
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->pool == pool && each->alive) used += each->nbytes;
    amounts_use(&pool->amounts, used);
}

void pool_take(struct pool *pool, struct allocation *allocation) {
    allocation->pool = pool;
    pool->references++;
    count(pool);
}

void pool_forget(struct allocation *allocation) {
    if (allocation->pool) release(allocation->pool);
}

/* ---- the functions -------------------------------------------------------------------------------- */

API(2, 0, cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, handle *, answer, int, device) {
    struct pool *pool;
    TRY(pool_of_device(device, &pool));
    *answer = pool->handle;
    return SUCCESS;
}

API(2, 0, cuMemPoolCreate, 11020, cuMemPoolCreate, handle *, answer,
    const struct pool_properties *, properties) {
    if (!properties || properties->type != PINNED) return INVALID_VALUE;
    if (properties->location.type != ON_A_DEVICE || properties->handle_types) return NOT_SUPPORTED;
    if (!is_device(properties->location.number)) return INVALID_DEVICE;
    *answer = new(POOL, properties->location.number)->handle;
    return SUCCESS;
}

/* It goes when the last of its allocations does. */
API(1, 0, cuMemPoolDestroy, 11020, cuMemPoolDestroy, handle, which) {
    struct pool *pool = handle_is(which, DEFAULT_POOL) ? NULL : handle_get(which, POOL);
    if (!pool) return INVALID_VALUE;
    handle_drop(which);
    release(pool);
    return SUCCESS;
}

API(2, 0, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, handle, which, size_t, least) {
    struct pool *pool;
    TRY(pool_of(which, &pool));
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    count(pool);
    amounts_trim(&pool->amounts, least);
    return SUCCESS;
}

static uint64_t *amount_of(struct pool *pool, int attribute) {
    if (attribute == USED_NOW) return &pool->amounts.used;
    if (attribute == USED_MOST) return &pool->amounts.used_most;
    return attribute == RESERVED_NOW ? &pool->amounts.reserved : &pool->amounts.reserved_most;
}

API(3, 0, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, handle, which, int, attribute, void *, answer) {
    struct pool *pool;
    TRY(pool_of(which, &pool));
    count(pool);
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST)
        *(int *)answer = pool->reuse[attribute];
    else if (attribute == RELEASE_THRESHOLD)
        *(uint64_t *)answer = pool->threshold;
    else if (attribute >= RESERVED_NOW && attribute <= USED_MOST)
        *(uint64_t *)answer = *amount_of(pool, attribute);
    else
        return INVALID_VALUE;
    return SUCCESS;
}

/* The high marks can be set back to what is there now, by setting them to zero. */
API(3, 0, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, handle, which, int, attribute,
    const void *, value) {
    struct pool *pool;
    TRY(pool_of(which, &pool));
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) {
        pool->reuse[attribute] = *(const int *)value;
    } else if (attribute == RELEASE_THRESHOLD) {
        pool->threshold = *(const uint64_t *)value;
    } else {
        if ((attribute != RESERVED_MOST && attribute != USED_MOST) || *(const uint64_t *)value)
            return INVALID_VALUE;
        *amount_of(pool, attribute) = 0;
        count(pool);
    }
    return SUCCESS;
}
