/* The system and its agents: a CPU, and GPUs of the kind gfx1100 that are none. */
#include "library.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static constexpr char ISA[] = "amdgcn-amd-amdhsa--gfx1100";

/* How many GPUs there are: SOFTWARE_HSA_DEVICES, else one. */
static uint64_t devices() {
    static const uint64_t count = [] {
        const char *value = getenv("SOFTWARE_HSA_DEVICES");
        return value && *value ? uint64_t(std::clamp(atoi(value), 0, 16)) : 1;
    }();
    return count;
}

/* ---- the system ---------------------------------------------------------------------------------- */

API hsa_status_t hsa_init() { return OK; }
API hsa_status_t hsa_shut_down() { return OK; }

API hsa_status_t hsa_status_string(hsa_status_t status, const char **answer) {
    static thread_local char text[32];
    snprintf(text, sizeof text, "HSA status 0x%x", unsigned(status));
    *answer = text;
    return OK;
}

API hsa_status_t hsa_system_get_info(hsa_system_info_t what, void *answer) {
    switch (int(what)) {
    case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY: *static_cast<uint64_t *>(answer) = 1'000'000'000; return OK;
    case HSA_SYSTEM_INFO_TIMESTAMP: *static_cast<uint64_t *>(answer) = now(); return OK;
    case HSA_SYSTEM_INFO_VERSION_MAJOR:
    case HSA_SYSTEM_INFO_VERSION_MINOR: *static_cast<uint16_t *>(answer) = 1; return OK;
    case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
    case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
    case HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED:
    case HSA_AMD_SYSTEM_INFO_XNACK_ENABLED: *static_cast<bool *>(answer) = false; return OK;
    case HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED: *static_cast<bool *>(answer) = true; return OK;
    default: unknown("property 0x%x of the system", what); return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

static hsa_status_t unknown_extension() { return unknown("such function of an extension"); }

API hsa_status_t hsa_system_get_major_extension_table(uint16_t, uint16_t, size_t size, void *table) {
    auto *functions = static_cast<hsa_status_t (**)()>(table);
    std::fill_n(functions, size / sizeof *functions, unknown_extension);
    return OK;
}

API hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t, void *) { return OK; }
API hsa_status_t hsa_amd_enable_logging(uint8_t *, void *) { return OK; }

/* ---- agents -------------------------------------------------------------------------------------- */

API hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t, void *), void *data) {
    for (uint64_t agent = CPU; agent <= CPU + devices(); agent++) {
        hsa_status_t status = callback({agent}, data);
        if (status != OK) return status;
    }
    return OK;
}

API hsa_status_t hsa_agent_iterate_isas(hsa_agent_t, hsa_status_t (*callback)(hsa_isa_t, void *),
                                        void *data) {
    return callback({1}, data);
}

API hsa_status_t hsa_isa_get_info_alt(hsa_isa_t, hsa_isa_info_t what, void *answer) {
    switch (what) {
    case HSA_ISA_INFO_NAME_LENGTH: *static_cast<uint32_t *>(answer) = sizeof ISA - 1; return OK;
    case HSA_ISA_INFO_NAME: memcpy(answer, ISA, sizeof ISA - 1); return OK;
    default: unknown("property %d of instruction sets", what); return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}

API hsa_status_t hsa_amd_agent_set_async_scratch_limit(hsa_agent_t, size_t) { return OK; }
API hsa_status_t hsa_amd_coherency_set_type(hsa_agent_t, hsa_amd_coherency_type_t) { return OK; }

/* The properties that are numbers of 32 bits. */
static const struct {
    int property;
    uint32_t value;
} NUMBERS[] = {
    {HSA_AGENT_INFO_FEATURE, HSA_AGENT_FEATURE_KERNEL_DISPATCH},
    {HSA_AGENT_INFO_PROFILE, HSA_PROFILE_BASE},
    {HSA_AGENT_INFO_WAVEFRONT_SIZE, 32},
    {HSA_AGENT_INFO_WORKGROUP_MAX_SIZE, 1024},
    {HSA_AGENT_INFO_GRID_MAX_SIZE, 0x7fffffff},
    {HSA_AGENT_INFO_QUEUES_MAX, 128},
    {HSA_AGENT_INFO_QUEUE_MIN_SIZE, 64},
    {HSA_AGENT_INFO_QUEUE_MAX_SIZE, 131072},
    {HSA_AMD_AGENT_INFO_ASIC_REVISION, 0},
    {HSA_AMD_AGENT_INFO_CACHELINE_SIZE, 128},
    {HSA_AMD_AGENT_INFO_CHIP_ID, 0x744c},
    {HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, 4},
    {HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT, 4},
    {HSA_AMD_AGENT_INFO_DOMAIN, 0},
    {HSA_AMD_AGENT_INFO_IOMMU_SUPPORT, 0},
    {HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY, 1000},
    {HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU, 32},
    {HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY, 1000},
    {HSA_AMD_AGENT_INFO_MEMORY_WIDTH, 256},
    {HSA_AMD_AGENT_INFO_NUM_SDMA_ENG, 2},
    {HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG, 0},
    {HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE, 1},
    {HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES, 1},
    {HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU, 2},
    {HSA_AMD_AGENT_INFO_NUM_XCC, 1},
    {HSA_AMD_AGENT_INFO_SDMA_UCODE_VERSION, 100},
    {HSA_AMD_AGENT_INFO_UCODE_VERSION, 100},
};

API hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t what, void *answer) {
    bool is_cpu = agent.handle == CPU;
    auto *text = static_cast<char *>(answer);
    auto *number = static_cast<uint32_t *>(answer);
    for (auto &each : NUMBERS)
        if (each.property == int(what)) {
            *number = each.value;
            return OK;
        }
    switch (int(what)) {
    case HSA_AGENT_INFO_DEVICE: *number = is_cpu ? HSA_DEVICE_TYPE_CPU : HSA_DEVICE_TYPE_GPU; return OK;
    case HSA_AGENT_INFO_NODE:
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID:
    case HSA_AMD_AGENT_INFO_DRIVER_UID: *number = uint32_t(agent.handle - CPU); return OK;
    case HSA_AMD_AGENT_INFO_BDFID: *number = uint32_t(agent.handle << 8); return OK; /* the bus, for one */

    case HSA_AGENT_INFO_NAME: snprintf(text, 64, "%s", is_cpu ? "CPU" : strstr(ISA, "gfx")); return OK;
    case HSA_AGENT_INFO_VENDOR_NAME: snprintf(text, 64, "AMD"); return OK;
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME: snprintf(text, 64, "software"); return OK;
    case HSA_AMD_AGENT_INFO_UUID: snprintf(text, 21, "GPU-%016lx", agent.handle); return OK;

    case HSA_AGENT_INFO_VERSION_MAJOR:
    case HSA_AGENT_INFO_VERSION_MINOR: *static_cast<uint16_t *>(answer) = 1; return OK;
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM: std::fill_n(static_cast<uint16_t *>(answer), 3, 1024); return OK;
    case HSA_AGENT_INFO_GRID_MAX_DIM: std::fill_n(number, 3, 0x7fffffff); return OK;
    case HSA_AGENT_INFO_CACHE_SIZE:
        std::copy_n((const uint32_t[]){32768, 6 << 20, 0, 0}, 4, number);
        return OK;
    case HSA_AGENT_INFO_EXTENSIONS: memset(answer, 0, 128); return OK;
    case HSA_AMD_AGENT_INFO_HDP_FLUSH: memset(answer, 0, sizeof(hsa_amd_hdp_flush_t)); return OK;
    case HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES:
    case HSA_AMD_AGENT_INFO_AQL_EXTENSIONS: memset(answer, 0, 8); return OK;
    case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES:
    case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS: *static_cast<bool *>(answer) = false; return OK;
    case HSA_AMD_AGENT_INFO_NEAREST_CPU: *static_cast<hsa_agent_t *>(answer) = {CPU}; return OK;
    case HSA_AMD_AGENT_INFO_MEMORY_AVAIL:
        *static_cast<uint64_t *>(answer) = memory_available(agent.handle);
        return OK;
    case HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY: *static_cast<uint64_t *>(answer) = 1'000'000'000; return OK;
    case HSA_AMD_AGENT_INFO_SCRATCH_LIMIT_MAX:
    case HSA_AMD_AGENT_INFO_SCRATCH_LIMIT_CURRENT: *static_cast<uint64_t *>(answer) = 1 << 30; return OK;
    default: unknown("property 0x%x of agents", what); return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
}
