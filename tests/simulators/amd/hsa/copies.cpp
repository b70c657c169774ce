/* Copies: carried out by one thread, each when all that it waits for has come, or later in harsh mode. */
#include "library.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <vector>

struct Copy {
    std::vector<hsa_signal_t> after;
    hsa_signal_t completion;
    std::function<void()> work;

    bool due() const {
        return std::all_of(after.begin(), after.end(),
                           [](hsa_signal_t each) { return !each.handle || value_of(each) == 0; });
    }
};

static std::list<Copy> &copies() {
    static auto &the = *new std::list<Copy>;
    return the;
}

static void work_off() {
    Chance chance(0);
    std::unique_lock lock(monitor().mutex);
    for (;;) {
        monitor().changed.wait(lock, [] { return !copies().empty(); });
        auto due = [](const Copy &each) { return each.due(); };
        auto found = std::find_if(copies().begin(), copies().end(), due);
        if (found == copies().end()) {
            monitor().sleep(lock);
            continue;
        }
        if (harsh())
            for (size_t others = chance.below(copies().size()); others; others--) {
                auto next = std::find_if(std::next(found), copies().end(), due);
                if (next == copies().end()) break;
                found = next;
            }
        Copy copy = std::move(*found);
        copies().erase(found);
        lock.unlock();
        if (harsh()) std::this_thread::sleep_for(chance.delay());
        uint64_t start = now();
        copy.work();
        complete(copy.completion, start);
        lock.lock();
    }
}

static hsa_status_t enqueue(uint32_t count, const hsa_signal_t *after, hsa_signal_t completion,
                            std::function<void()> work) {
    static std::once_flag started;
    std::call_once(started, [] { start_thread(work_off).detach(); });
    {
        std::lock_guard lock(monitor().mutex);
        copies().push_back({{after, after + count}, completion, std::move(work)});
    }
    monitor().changed.notify_all();
    return OK;
}

API hsa_status_t hsa_memory_copy(void *target, const void *source, size_t size) {
    store_from_outside(target, size);
    memmove(target, source, size);
    return OK;
}

API hsa_status_t hsa_amd_memory_async_copy(void *target, hsa_agent_t, const void *source, hsa_agent_t,
                                           size_t size, uint32_t count, const hsa_signal_t *after,
                                           hsa_signal_t completion) {
    return enqueue(count, after, completion, [=] { hsa_memory_copy(target, source, size); });
}

API hsa_status_t hsa_amd_memory_async_copy_on_engine(void *target, hsa_agent_t to, const void *source,
                                                     hsa_agent_t from, size_t size, uint32_t count,
                                                     const hsa_signal_t *after, hsa_signal_t completion,
                                                     hsa_amd_sdma_engine_id_t, bool) {
    return hsa_amd_memory_async_copy(target, to, source, from, size, count, after, completion);
}

static char *place(const hsa_pitched_ptr_t &base, const hsa_dim3_t &offset, uint32_t y, uint32_t z) {
    return static_cast<char *>(base.base) + (offset.z + z) * base.slice + (offset.y + y) * base.pitch +
           offset.x;
}

API hsa_status_t hsa_amd_memory_async_copy_rect(const hsa_pitched_ptr_t *to, const hsa_dim3_t *to_offset,
                                                const hsa_pitched_ptr_t *from, const hsa_dim3_t *from_offset,
                                                const hsa_dim3_t *size, hsa_agent_t, hsa_amd_copy_direction_t,
                                                uint32_t count, const hsa_signal_t *after,
                                                hsa_signal_t completion) {
    return enqueue(
        count, after, completion,
        [to = *to, to_offset = *to_offset, from = *from, from_offset = *from_offset, size = *size] {
            for (uint32_t z = 0; z < size.z; z++)
                for (uint32_t y = 0; y < size.y; y++)
                    hsa_memory_copy(place(to, to_offset, y, z), place(from, from_offset, y, z), size.x);
        });
}

/* ---- engines: there are two, and it doesn't matter which one is asked ---------------------------- */

API hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t, hsa_agent_t, uint32_t *mask) {
    *mask = HSA_AMD_SDMA_ENGINE_0 | HSA_AMD_SDMA_ENGINE_1;
    return OK;
}

API hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t, hsa_agent_t, uint32_t *mask) {
    *mask = HSA_AMD_SDMA_ENGINE_0;
    return OK;
}
