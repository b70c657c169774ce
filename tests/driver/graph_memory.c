/* The memory that a device keeps for the graphs that allocate some. */
#include "driver.h"

enum { MOST_DEVICES = 16 };
enum attribute { USED_NOW, USED_MOST, RESERVED_NOW, RESERVED_MOST };

static const size_t PART = 1 << 25; /* what is reserved at a time, as on an H200 */
static uint64_t values[MOST_DEVICES][4];

static uint64_t in_parts(uint64_t nbytes) { return (nbytes + PART - 1) / PART * PART; }

static void raise_to(uint64_t *value, uint64_t least) {
    if (*value < least) *value = least;
}

void graph_memory_used(int device) {
    uint64_t *of = values[device];
    of[USED_NOW] = allocations_mapped(device);
    raise_to(&of[USED_MOST], of[USED_NOW]);
    raise_to(&of[RESERVED_NOW], in_parts(of[USED_NOW]));
    raise_to(&of[RESERVED_MOST], of[RESERVED_NOW]);
}

static bool is_device(int device) { return device >= 0 && device < driver_devices && device < MOST_DEVICES; }

API(3, 0, cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute, int, device, int, attribute,
    uint64_t *, value) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (attribute < USED_NOW || attribute > RESERVED_MOST) return INVALID_VALUE;
    graph_memory_used(device);
    *value = values[device][attribute];
    return SUCCESS;
}

/* The high marks can be set back to what is there now, by setting them to zero. */
API(3, 0, cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute, int, device, int, attribute,
    const uint64_t *, value) {
    if (!is_device(device)) return INVALID_DEVICE;
    if ((attribute != USED_MOST && attribute != RESERVED_MOST) || *value) return INVALID_VALUE;
    values[device][attribute] = 0;
    graph_memory_used(device);
    return SUCCESS;
}

API(1, 0, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (capture_forbids()) return CAPTURE_UNSUPPORTED;
    graph_memory_used(device);
    values[device][RESERVED_NOW] = in_parts(values[device][USED_NOW]);
    return SUCCESS;
}
