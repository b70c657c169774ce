/* Virtual memory: addresses that are reserved first, and files in memory that are mapped to them. */
#include "library.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

struct Storage {
    int file;
    uint64_t agent;
};

static Storage *storage_of(hsa_amd_vmem_alloc_handle_t handle) {
    return reinterpret_cast<Storage *>(handle.handle);
}

static void *reserve(void *where, size_t size, int flags) {
    return mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

API hsa_status_t hsa_amd_vmem_address_reserve_align(void **made, size_t size, uint64_t, uint64_t alignment,
                                                    uint64_t) {
    size_t step = std::max<size_t>(alignment, 4096);
    auto *found = static_cast<char *>(reserve(nullptr, size + step, 0));
    if (found == MAP_FAILED) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    size_t before = -reinterpret_cast<uintptr_t>(found) % step;
    if (before) munmap(found, before);
    munmap(found + before + size, step - before);
    note_range(*made = found + before, size, CPU + 1, COARSE);
    return OK;
}

API hsa_status_t hsa_amd_vmem_address_reserve(void **made, size_t size, uint64_t address, uint64_t flags) {
    return hsa_amd_vmem_address_reserve_align(made, size, address, 0, flags);
}

API hsa_status_t hsa_amd_vmem_address_free(void *address, size_t size) {
    size_t noted;
    uint64_t agent;
    if (!forget_range(address, &noted, &agent)) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    munmap(address, size);
    return OK;
}

API hsa_status_t hsa_amd_vmem_handle_create(hsa_amd_memory_pool_t pool, size_t size, hsa_amd_memory_type_t,
                                            uint64_t, hsa_amd_vmem_alloc_handle_t *made) {
    if (size > MEMORY) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    int file = memfd_create("software HSA", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(size))) {
        if (file >= 0) close(file);
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    made->handle = reinterpret_cast<uint64_t>(new Storage{file, agent_of(pool)});
    return OK;
}

API hsa_status_t hsa_amd_vmem_handle_release(hsa_amd_vmem_alloc_handle_t handle) {
    close(storage_of(handle)->file); /* what is mapped stays */
    delete storage_of(handle);
    return OK;
}

API hsa_status_t hsa_amd_vmem_map(void *address, size_t size, size_t offset,
                                  hsa_amd_vmem_alloc_handle_t handle, uint64_t) {
    void *mapped = mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        storage_of(handle)->file, off_t(offset));
    return mapped == MAP_FAILED ? HSA_STATUS_ERROR : OK;
}

API hsa_status_t hsa_amd_vmem_unmap(void *address, size_t size) {
    forget_cached(address, size);
    return reserve(address, size, MAP_FIXED) == MAP_FAILED ? HSA_STATUS_ERROR : OK;
}

API hsa_status_t hsa_amd_vmem_set_access(void *, size_t, const hsa_amd_memory_access_desc_t *, size_t) {
    return OK;
}

API hsa_status_t hsa_amd_vmem_get_access(void *, hsa_access_permission_t *permission, hsa_agent_t) {
    *permission = HSA_ACCESS_PERMISSION_RW;
    return OK;
}
