/* Devices and what they can do. */
#include <stdio.h>
#include <string.h>

#include "memory.h"

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
    if (!name || length < 1) return INVALID_VALUE;
    if (!is_device(device)) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "Software CUDA %d", device);
    return SUCCESS;
}

static CUresult get_uuid(unsigned char *uuid, int device) {
    enum { BYTES = 16 };
    if (!is_device(device)) return INVALID_DEVICE;
    memset(uuid, 0, BYTES);
    uuid[BYTES - 1] = (unsigned char)(device + 1);
    return SUCCESS;
}

API(2, 0, cuDeviceGetUuid, 9020, cuDeviceGetUuid, unsigned char *, uuid, int, device) {
    return get_uuid(uuid, device);
}

API(2, 0, cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, unsigned char *, uuid, int, device) {
    return get_uuid(uuid, device);
}

API(2, 0, cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, size_t *, nbytes, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    *nbytes = memory_total();
    return SUCCESS;
}

enum { PCI_BUS = 33 };

static const struct {
    int number, value;
} ATTRIBUTES[] = {
    {1, 1024},             /* threads per block */
    {2, 1024},             /* block, x */
    {3, 1024},             /* y */
    {4, 64},               /* z */
    {5, 0x7fffffff},       /* grid, x */
    {6, 65535},            /* y */
    {7, 65535},            /* z */
    {8, 48 << 10},         /* shared memory per block */
    {9, 64 << 10},         /* constant memory */
    {10, 32},              /* threads in a warp */
    {11, 0x7fffffff},      /* pitch */
    {12, 1 << 16},         /* registers per block */
    {13, 1000000},         /* kHz */
    {14, 512},             /* alignment of textures */
    {15, 1},               /* copies beside kernels */
    {16, 4},               /* multiprocessors */
    {17, 0},               /* time limit for kernels */
    {18, 0},               /* integrated */
    {19, 1},               /* can map host memory */
    {20, 0},               /* compute mode: default */
    {31, 1},               /* concurrent kernels */
    {32, 0},               /* ECC */
    {PCI_BUS, 0},          /* one more than the device */
    {34, 0},               /* PCI device */
    {35, 0},               /* TCC */
    {36, 1000000},         /* kHz of the memory */
    {37, 64},              /* bits of its bus */
    {38, 1 << 20},         /* L2 cache */
    {39, 2048},            /* threads per multiprocessor */
    {40, 1},               /* copy engines */
    {41, 1},               /* unified addresses */
    {50, 0},               /* PCI domain */
    {75, 9},               /* compute capability, major */
    {76, 0},               /* minor */
    {78, 1},               /* priorities of streams */
    {81, 228 << 10},       /* shared memory per multiprocessor */
    {82, 1 << 16},         /* registers per multiprocessor */
    {83, 1},               /* managed memory */
    {84, 0},               /* one of several on a board */
    {88, 1},               /* pageable memory can be read */
    {89, 1},               /* managed memory at the same time */
    {90, 1},               /* preemption */
    {91, 1},               /* pointers of the host can be used */
    {95, 0},               /* cooperative launches */
    {97, 227 << 10},       /* shared memory per block, on demand */
    {102, 0},              /* virtual memory */
    {106, 32},             /* blocks per multiprocessor */
    {115, 1},              /* pools of memory */
    {120, 0},              /* launches of clusters */
};

API(3, 0, cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, int *, value, int, attribute, int, device) {
    if (!is_device(device)) return INVALID_DEVICE;
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
        if (ATTRIBUTES[i].number == attribute) {
            *value = attribute == PCI_BUS ? device + 1 : ATTRIBUTES[i].value;
            return SUCCESS;
        }
    count_unknown("an attribute of cuDeviceGetAttribute");
    return NOT_SUPPORTED;
}
