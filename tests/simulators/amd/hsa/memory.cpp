/* Memory: pools of each agent, all in the memory of the host. */
#include "library.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

struct Range {
    size_t size;
    uint64_t agent;
    Kind kind;
};

struct Ranges {
    std::mutex mutex;
    std::map<char *, Range> by_address;
    std::map<uint64_t, uint64_t> used; /* by agent: bytes that pools have given out */
};

static Ranges &ranges() {
    static auto &the = *new Ranges;
    return the;
}

static size_t whole_pages(size_t size) { return (size + 4095) & ~size_t{4095}; }

void note_range(void *address, size_t size, uint64_t agent, Kind kind) {
    std::lock_guard lock(ranges().mutex);
    ranges().by_address[static_cast<char *>(address)] = {size, agent, kind};
}

/* The range that an address lies in, if there is one. */
static auto range_around(char *address) {
    auto next = ranges().by_address.upper_bound(address);
    if (next == ranges().by_address.begin()) return ranges().by_address.end();
    --next;
    return address < next->first + next->second.size ? next : ranges().by_address.end();
}

bool is_cached(void *memory, size_t size, uint64_t *agent) {
    auto *address = static_cast<char *>(memory);
    std::lock_guard lock(ranges().mutex);
    auto found = range_around(address);
    if (found == ranges().by_address.end()) return false;
    auto &[start, range] = *found;
    *agent = range.agent;
    return range.agent != CPU && range.kind == COARSE && address + size <= start + range.size;
}

bool forget_range(void *address, size_t *size, uint64_t *agent) {
    std::lock_guard lock(ranges().mutex);
    auto found = ranges().by_address.find(static_cast<char *>(address));
    if (found == ranges().by_address.end()) return false;
    *size = found->second.size;
    *agent = found->second.agent;
    ranges().by_address.erase(found);
    forget_cached(address, *size);
    return true;
}

uint64_t memory_available(uint64_t agent) {
    std::lock_guard lock(ranges().mutex);
    return MEMORY - ranges().used[agent];
}

/* Take so much of an agent's memory, or give it back; false if it has no more. */
static bool take(uint64_t agent, int64_t size) {
    std::lock_guard lock(ranges().mutex);
    uint64_t &used = ranges().used[agent];
    if (size > 0 && uint64_t(size) > MEMORY - used) return false;
    used += uint64_t(size);
    return true;
}

/* ---- pools --------------------------------------------------------------------------------------- */

API hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
                                                    hsa_status_t (*callback)(hsa_amd_memory_pool_t, void *),
                                                    void *data) {
    auto kinds =
        agent.handle == CPU ? std::vector{FINE, KERNEL_ARGUMENTS, COARSE} : std::vector{COARSE, FINE, GROUP};
    for (Kind kind : kinds) {
        hsa_status_t status = callback(pool_of(agent.handle, kind), data);
        if (status != OK) return status;
    }
    return OK;
}

API hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t what,
                                              void *answer) {
    static constexpr uint32_t flags[] = {
        HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED,
        HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT,
        HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED,
        0,
    };
    auto kind = Kind(pool.handle & 0xff);
    switch (what) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
        *static_cast<uint32_t *>(answer) = kind == GROUP ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL;
        return OK;
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS: *static_cast<uint32_t *>(answer) = flags[kind]; return OK;
    case HSA_AMD_MEMORY_POOL_INFO_SIZE:
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE:
        *static_cast<size_t *>(answer) = kind == GROUP ? 65536 : MEMORY;
        return OK;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED:
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL: *static_cast<bool *>(answer) = kind != GROUP; return OK;
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE: *static_cast<size_t *>(answer) = 4096; return OK;
    default: unknown("property %d of memory pools", what); return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

API hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t, hsa_amd_memory_pool_t,
                                                    hsa_amd_agent_memory_pool_info_t what, void *answer) {
    switch (what) {
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS:
        *static_cast<uint32_t *>(answer) = HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT;
        return OK;
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS: *static_cast<uint32_t *>(answer) = 1; return OK;
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO:
        *static_cast<hsa_amd_memory_pool_link_info_t *>(answer) = {};
        static_cast<hsa_amd_memory_pool_link_info_t *>(answer)->link_type = HSA_AMD_LINK_INFO_TYPE_PCIE;
        return OK;
    default:
        unknown("property %d of an agent's memory pools", what);
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

API hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t size, uint32_t,
                                              void **made) {
    uint64_t agent = agent_of(pool);
    if (size > MEMORY || !take(agent, int64_t(size))) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    void *memory = mmap(nullptr, whole_pages(size), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        take(agent, -int64_t(size));
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    note_range(memory, size, agent, Kind(pool.handle & 0xff));
    *made = memory;
    return OK;
}

API hsa_status_t hsa_amd_memory_pool_free(void *memory) {
    size_t size;
    uint64_t agent;
    if (!memory) return OK;
    if (!forget_range(memory, &size, &agent)) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    munmap(memory, whole_pages(size)); /* whoever uses it still is to crash */
    take(agent, -int64_t(size));
    return OK;
}

/* ---- addresses ----------------------------------------------------------------------------------- */

API hsa_status_t hsa_amd_pointer_info(const void *pointer, hsa_amd_pointer_info_t *info, void *(*)(size_t),
                                      uint32_t *agents, hsa_agent_t **) {
    hsa_amd_pointer_info_t found{};
    found.size = info->size;
    found.type = HSA_EXT_POINTER_TYPE_UNKNOWN;
    if (agents) *agents = 0;
    {
        std::lock_guard lock(ranges().mutex);
        auto known = range_around(static_cast<char *>(const_cast<void *>(pointer)));
        if (known != ranges().by_address.end()) {
            auto &[start, range] = *known;
            found.type = HSA_EXT_POINTER_TYPE_HSA;
            found.agentBaseAddress = found.hostBaseAddress = start;
            found.sizeInBytes = range.size;
            found.agentOwner = {range.agent};
        }
    }
    memcpy(info, &found, std::min<size_t>(info->size, sizeof found));
    return OK;
}

API hsa_status_t hsa_amd_memory_lock_to_pool(void *memory, size_t, hsa_agent_t *, int, hsa_amd_memory_pool_t,
                                             uint32_t, void **locked) {
    *locked = memory;
    return OK;
}

/* ---- every agent sees all memory, wherever it is ------------------------------------------------- */

API hsa_status_t hsa_amd_memory_unlock(void *) { return OK; }
API hsa_status_t hsa_amd_agents_allow_access(uint32_t, const hsa_agent_t *, const uint32_t *, const void *) {
    return OK;
}
API hsa_status_t hsa_memory_register(void *, size_t) { return OK; }
API hsa_status_t hsa_memory_deregister(void *, size_t) { return OK; }
