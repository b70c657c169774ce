/* The memory that a device keeps for the graphs that allocate some. */
#include "memory.h"

enum attribute { USED_NOW, USED_MOST, RESERVED_NOW, RESERVED_MOST };

struct amounts { /* what is used of what is reserved, and how much it was at most */
    uint64_t reserved, reserved_most, used, used_most;
};

static const uint64_t PART = 1 << 25; /* what is reserved at a time, as on an H200 */

static void raise_to(uint64_t *value, uint64_t least) {
    if (*value < least) *value = least;
}

static uint64_t in_parts(uint64_t nbytes) { return (nbytes + PART - 1) / PART * PART; }

static void amounts_use(struct amounts *amounts, uint64_t nbytes) {
    amounts->used = nbytes;
    raise_to(&amounts->used_most, nbytes);
    raise_to(&amounts->reserved, in_parts(nbytes));
    raise_to(&amounts->reserved_most, amounts->reserved);
}

static void amounts_trim(struct amounts *amounts, uint64_t least) {
    uint64_t kept = in_parts(least > amounts->used ? least : amounts->used);
    if (amounts->reserved > kept) amounts->reserved = kept;
}

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
