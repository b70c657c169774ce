/* Devices and what they can do. */
#include "driver.h"

#include <stdio.h>

bool is_device(int device) { return device >= 0 && device < driver_devices && device < MOST_DEVICES; }

API(1, 0, cuDeviceGetCount, 2000, cuDeviceGetCount, int *, count) {
    *count = driver_devices;
    return SUCCESS;
}

API(2, 0, cuDeviceGet, 2000, cuDeviceGet, int *, device, int, ordinal) {
    if (!is_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

API(3, 0, cuDeviceGetName, 2000, cuDeviceGetName, char *, name, int, length, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    snprintf(name, length, "software CUDA device %d", device);
    return SUCCESS;
}

static const struct {
    int number, value;
} ATTRIBUTES[] = {
    {1, 1024}, /* threads per block */
    {10, 32},  /* threads in a warp */
    {16, 4},   /* multiprocessors */
    {75, 9},   /* compute capability, major */
    {76, 0},   /* minor */
};

API(3, 0, cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, int *, value, int, attribute, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
        if (ATTRIBUTES[i].number == attribute) {
            *value = ATTRIBUTES[i].value;
            return SUCCESS;
        }
    count_unknown("an attribute of cuDeviceGetAttribute");
    return NOT_SUPPORTED;
}
