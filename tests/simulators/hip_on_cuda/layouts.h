/* HIP's structures: asserted against HIP's documented layout and, where one is CUDA's own, against that. */
#ifndef SHIM_LAYOUTS_H
#define SHIM_LAYOUTS_H

#include "hip.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " in HIP")
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " in HIP")

/* ---- CUDA's own ---------------------------------------------------------------------------------- */

typedef CUDA_HOST_NODE_PARAMS hipHostNodeParams;
SIZE(hipHostNodeParams, 16);
AT(hipHostNodeParams, fn, 0);
AT(hipHostNodeParams, userData, 8);

typedef CUmemPoolProps hipMemPoolProps;
SIZE(hipMemPoolProps, 88);
AT(hipMemPoolProps, allocType, 0);
AT(hipMemPoolProps, handleTypes, 4);
AT(hipMemPoolProps, location, 8);
AT(hipMemPoolProps, win32SecurityAttributes, 16);
AT(hipMemPoolProps, maxSize, 24);

typedef CUDA_MEM_ALLOC_NODE_PARAMS hipMemAllocNodeParams;
SIZE(hipMemAllocNodeParams, 120);
AT(hipMemAllocNodeParams, accessDescs, 88);
AT(hipMemAllocNodeParams, accessDescCount, 96);
AT(hipMemAllocNodeParams, bytesize, 104);
AT(hipMemAllocNodeParams, dptr, 112);

typedef CUgraphEdgeData hipGraphEdgeData;
SIZE(hipGraphEdgeData, 8);

/* ---- HIP's own order of fields ------------------------------------------------------------------- */

typedef struct {
    unsigned x, y, z;
} hipDim3;

typedef struct {
    hipDim3 blockDim;
    void **extra;
    void *func;
    hipDim3 gridDim;
    void **kernelParams;
    unsigned sharedMemBytes;
} hipKernelNodeParams;
SIZE(hipKernelNodeParams, 64);
AT(hipKernelNodeParams, extra, 16);
AT(hipKernelNodeParams, func, 24);
AT(hipKernelNodeParams, gridDim, 32);
AT(hipKernelNodeParams, kernelParams, 48);
AT(hipKernelNodeParams, sharedMemBytes, 56);

typedef struct {
    void *dst;
    unsigned elementSize;
    size_t height, pitch;
    unsigned value;
    size_t width;
} hipMemsetParams;
SIZE(hipMemsetParams, 48);
AT(hipMemsetParams, elementSize, 8);
AT(hipMemsetParams, height, 16);
AT(hipMemsetParams, pitch, 24);
AT(hipMemsetParams, value, 32);
AT(hipMemsetParams, width, 40);

typedef struct {
    void *ptr;
    size_t pitch, xsize, ysize;
} hipPitchedPtr;

typedef struct {
    hipArray_t srcArray;
    size_t srcPos[3];
    hipPitchedPtr srcPtr;
    hipArray_t dstArray;
    size_t dstPos[3];
    hipPitchedPtr dstPtr;
    size_t extent[3];
    hipMemcpyKind kind;
} hipMemcpy3DParms;
SIZE(hipMemcpy3DParms, 160);
AT(hipMemcpy3DParms, srcPos, 8);
AT(hipMemcpy3DParms, srcPtr, 32);
AT(hipMemcpy3DParms, dstArray, 64);
AT(hipMemcpy3DParms, dstPos, 72);
AT(hipMemcpy3DParms, dstPtr, 96);
AT(hipMemcpy3DParms, extent, 128);
AT(hipMemcpy3DParms, kind, 152);

typedef struct {
    hipGraphNode_t errNode_out;
    unsigned long long flags;
    hipGraphInstantiateResult result_out;
    hipStream_t uploadStream;
} hipGraphInstantiateParams;
SIZE(hipGraphInstantiateParams, 32);
AT(hipGraphInstantiateParams, flags, 8);
AT(hipGraphInstantiateParams, result_out, 16);
AT(hipGraphInstantiateParams, uploadStream, 24);

typedef struct {
    int type;
    int device;
    void *devicePointer, *hostPointer;
    int isManaged;
    unsigned allocationFlags;
} hipPointerAttribute_t;
SIZE(hipPointerAttribute_t, 32);
AT(hipPointerAttribute_t, devicePointer, 8);
AT(hipPointerAttribute_t, hostPointer, 16);
AT(hipPointerAttribute_t, isManaged, 24);

typedef struct {
    int binaryVersion, cacheModeCA;
    size_t constSizeBytes, localSizeBytes;
    int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
    size_t sharedSizeBytes;
} hipFuncAttributes;
SIZE(hipFuncAttributes, 56);
AT(hipFuncAttributes, constSizeBytes, 8);
AT(hipFuncAttributes, maxDynamicSharedSizeBytes, 24);
AT(hipFuncAttributes, numRegs, 32);
AT(hipFuncAttributes, sharedSizeBytes, 48);

/* ---- the properties of a device, as of HIP 6: the fields that the shim fills, at their places ----- */

typedef union {
    unsigned char bytes[1472];
    struct {
        char name[256];
        char uuid[16];
        char skipped_1[16];
        size_t totalGlobalMem, sharedMemPerBlock;
        int regsPerBlock, warpSize;
        char skipped_2[8];
        int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
        size_t totalConstMem;
        int major, minor;
        char skipped_3[20];
        int multiProcessorCount;
        char skipped_4[4];
        int integrated, canMapHostMemory;
        char skipped_5[172];
        int concurrentKernels;
        char skipped_6[4];
        int pciBusID, pciDeviceID, pciDomainID;
        char skipped_7[4];
        int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize;
        char skipped_8[4];
        int maxThreadsPerMultiProcessor, streamPrioritiesSupported;
        char skipped_9[20];
        int managedMemory;
        char skipped_10[20];
        int concurrentManagedAccess;
        char skipped_11[8];
        int cooperativeLaunch;
        char skipped_12[52];
        int memoryPoolsSupported;
        char skipped_13[412];
        char gcnArchName[256];
    };
} hipDeviceProp_tR0600;
SIZE(hipDeviceProp_tR0600, 1472);
AT(hipDeviceProp_tR0600, uuid, 256);
AT(hipDeviceProp_tR0600, totalGlobalMem, 288);
AT(hipDeviceProp_tR0600, regsPerBlock, 304);
AT(hipDeviceProp_tR0600, maxThreadsPerBlock, 320);
AT(hipDeviceProp_tR0600, maxGridSize, 336);
AT(hipDeviceProp_tR0600, totalConstMem, 352);
AT(hipDeviceProp_tR0600, major, 360);
AT(hipDeviceProp_tR0600, multiProcessorCount, 388);
AT(hipDeviceProp_tR0600, integrated, 396);
AT(hipDeviceProp_tR0600, concurrentKernels, 576);
AT(hipDeviceProp_tR0600, pciBusID, 584);
AT(hipDeviceProp_tR0600, asyncEngineCount, 600);
AT(hipDeviceProp_tR0600, l2CacheSize, 616);
AT(hipDeviceProp_tR0600, maxThreadsPerMultiProcessor, 624);
AT(hipDeviceProp_tR0600, managedMemory, 652);
AT(hipDeviceProp_tR0600, concurrentManagedAccess, 676);
AT(hipDeviceProp_tR0600, cooperativeLaunch, 688);
AT(hipDeviceProp_tR0600, memoryPoolsSupported, 744);
AT(hipDeviceProp_tR0600, gcnArchName, 1160);

#endif
