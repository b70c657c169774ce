/* The memory that a device keeps for the graphs that allocate some. */
#include "memory.h"

enum attribute { USED_NOW, USED_MOST, RESERVED_NOW, RESERVED_MOST };

static struct memory {
    uint64_t freed_at_once; /* still counts as used, until a trim */
    struct amounts amounts;
} memories[MOST_DEVICES];

static struct memory *count(int device) {
    uint64_t used = 0;
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->of_graph && each->device == device && each->alive) used += each->nbytes;
    struct memory *memory = &memories[device];
    amounts_use(&memory->amounts, in_parts(used > memory->freed_at_once ? used : memory->freed_at_once));
    return memory;
}

void graph_memory_live(struct allocation *allocation, bool alive) {
    allocation->alive = alive;
    count(allocation->device);
}

void graph_memory_reserve(int device, uint64_t nbytes) { amounts_reserve(&memories[device].amounts, nbytes); }

void graph_memory_freed(const struct allocation *allocation) {
    if (allocation->of_graph) memories[allocation->device].freed_at_once += allocation->nbytes;
}

/* ---- the functions -------------------------------------------------------------------------------- */

static uint64_t *value_of(struct amounts *of, enum attribute attribute) {
    switch (attribute) {
        case USED_NOW: return &of->used;
        case USED_MOST: return &of->used_most;
        case RESERVED_NOW: return &of->reserved;
        case RESERVED_MOST: return &of->reserved_most;
    }
    return NULL;
}

API(3, 0, cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute, int, device, int, attribute,
    uint64_t *, value) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (attribute < USED_NOW || attribute > RESERVED_MOST) return INVALID_VALUE;
    *value = *value_of(&count(device)->amounts, (enum attribute)attribute);
    return SUCCESS;
}

/* The high marks can be set back to what is there now, by setting them to zero. */
API(3, 0, cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute, int, device, int, attribute,
    const uint64_t *, value) {
    if (!is_device(device)) return INVALID_DEVICE;
    if ((attribute != USED_MOST && attribute != RESERVED_MOST) || *value) return INVALID_VALUE;
    *value_of(&memories[device].amounts, (enum attribute)attribute) = 0;
    count(device);
    return SUCCESS;
}

API(1, 0, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    memories[device].freed_at_once = 0;
    amounts_trim(&count(device)->amounts, 0);
    return SUCCESS;
}
