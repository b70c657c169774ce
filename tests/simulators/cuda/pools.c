/* The pool of each device, from which memory is allocated in the order of a stream: all that there is. */
#include "memory.h"
#include "streams.h"

static char pools[MOST_DEVICES]; /* what their handles stand for */
static handle handles[MOST_DEVICES];

API(2, 0, cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, handle *, answer, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (!handles[device]) handles[device] = handle_new(POOL, &pools[device]);
    *answer = handles[device];
    return SUCCESS;
}

API(2, 0, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, handle, which, size_t, least) {
    if (!handle_get(which, POOL)) return INVALID_VALUE;
    return capture_forbids() ? CAPTURE_UNSUPPORTED : SUCCESS;
}
