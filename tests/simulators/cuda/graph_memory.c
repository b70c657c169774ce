/* The memory that a device keeps for the graphs that allocate some. */
#include "memory.h"

enum attribute { USED_NOW, USED_MOST, RESERVED_NOW, RESERVED_MOST };

static struct amounts memories[MOST_DEVICES];

/* It counts as used from when it is first needed until it is trimmed, whatever is freed meanwhile. */
void graph_memory_need(int device, uint64_t nbytes) {
    uint64_t used = in_parts(nbytes), before = memories[device].used;
    amounts_use(&memories[device], used > before ? used : before);
}

static uint64_t alive(int device) {
    uint64_t nbytes = 0;
    for (struct allocation *each = allocations; each; each = each->next)
        if (each->of_graph && each->device == device && each->alive) nbytes += each->nbytes;
    return nbytes;
}

void graph_memory_live(struct allocation *allocation, bool is_alive) {
    allocation->alive = is_alive;
    graph_memory_need(allocation->device, alive(allocation->device));
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
    *value = *value_of(&memories[device], (enum attribute)attribute);
    return SUCCESS;
}

/* The high marks can be set back to what is there now, by setting them to zero. */
API(3, 0, cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute, int, device, int, attribute,
    const uint64_t *, value) {
    if (!is_device(device)) return INVALID_DEVICE;
    if ((attribute != USED_MOST && attribute != RESERVED_MOST) || *value) return INVALID_VALUE;
    *value_of(&memories[device], (enum attribute)attribute) = 0;
    graph_memory_need(device, 0);
    return SUCCESS;
}

API(1, 0, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    amounts_use(&memories[device], in_parts(alive(device)));
    amounts_trim(&memories[device], 0);
    return SUCCESS;
}
