/* Signals: numbers that threads wait for, and handlers that are called when one has changed. */
#include "library.h"

#include <algorithm>
#include <list>
#include <vector>

Monitor &monitor() {
    static Monitor &the = *new Monitor;
    return the;
}

bool holds(int64_t value, uint32_t condition, int64_t other) {
    switch (condition) {
    case HSA_SIGNAL_CONDITION_EQ: return value == other;
    case HSA_SIGNAL_CONDITION_NE: return value != other;
    case HSA_SIGNAL_CONDITION_LT: return value < other;
    default: return value >= other;
    }
}

/* ---- their lives --------------------------------------------------------------------------------- */

/* Signals that were destroyed and wait to be used again. Their memory is never given back, as with AMD's
   own library, on which a late look at a signal that is gone does no harm either. */
static std::vector<amd_signal_t *> &spare() {
    static auto &the = *new std::vector<amd_signal_t *>;
    return the;
}

static hsa_signal_t signal_new(amd_signal_kind_t kind, int64_t value) {
    amd_signal_t *signal;
    {
        std::lock_guard lock(monitor().mutex);
        if (spare().empty()) {
            signal = new amd_signal_t;
        } else {
            signal = spare().back();
            spare().pop_back();
        }
    }
    *signal = {};
    signal->kind = kind;
    signal->value = value;
    return {reinterpret_cast<uint64_t>(signal)};
}

hsa_signal_t doorbell_new(Queue *queue) {
    hsa_signal_t doorbell = signal_new(AMD_SIGNAL_KIND_DOORBELL, 0);
    signal_of(doorbell)->queue_ptr = reinterpret_cast<decltype(amd_signal_t::queue_ptr)>(queue);
    return doorbell;
}

API hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t, const hsa_agent_t *,
                                   hsa_signal_t *made) {
    *made = signal_new(AMD_SIGNAL_KIND_USER, value);
    return OK;
}

API hsa_status_t hsa_amd_signal_create(hsa_signal_value_t value, uint32_t, const hsa_agent_t *, uint64_t,
                                       hsa_signal_t *made) {
    *made = signal_new(AMD_SIGNAL_KIND_USER, value);
    return OK;
}

API hsa_status_t hsa_signal_destroy(hsa_signal_t signal) {
    if (!signal.handle) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    std::lock_guard lock(monitor().mutex);
    spare().push_back(signal_of(signal));
    return OK;
}

/* ---- values -------------------------------------------------------------------------------------- */

API hsa_signal_value_t hsa_signal_load_relaxed(hsa_signal_t signal) { return value_of(signal); }

API hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t **pointer) {
    *pointer = &signal_of(signal)->value;
    return OK;
}

API void hsa_signal_silent_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    __atomic_store_n(&signal_of(signal)->value, value, __ATOMIC_SEQ_CST);
}

API void hsa_signal_store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    hsa_signal_silent_store_relaxed(signal, value);
    if (signal_of(signal)->kind == AMD_SIGNAL_KIND_DOORBELL)
        ring(reinterpret_cast<Queue *>(signal_of(signal)->queue_ptr));
    else monitor().announce();
}

API void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value) {
    hsa_signal_store_relaxed(signal, value);
}

API void hsa_signal_add_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    __atomic_fetch_add(&signal_of(signal)->value, value, __ATOMIC_SEQ_CST);
    monitor().announce();
}

API void hsa_signal_subtract_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    hsa_signal_add_relaxed(signal, -value);
}

void complete(hsa_signal_t signal, uint64_t start) {
    if (!signal.handle) return;
    signal_of(signal)->start_ts = start;
    signal_of(signal)->end_ts = now();
    hsa_signal_add_relaxed(signal, -1);
}

/* ---- waiting ------------------------------------------------------------------------------------- */

API hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
                                                 hsa_signal_value_t other, uint64_t timeout,
                                                 hsa_wait_state_t) {
    uint64_t start = now();
    std::unique_lock lock(monitor().mutex);
    for (;;) {
        int64_t value = value_of(signal);
        if (holds(value, condition, other) || now() - start >= timeout) return value;
        monitor().sleep(lock);
    }
}

struct Watch {
    hsa_signal_t signal;
    uint32_t condition;
    int64_t other;
    hsa_amd_signal_handler handler;
    void *argument;

    bool due() const { return holds(value_of(signal), condition, other); }
};

static std::list<Watch> &watches() {
    static auto &the = *new std::list<Watch>;
    return the;
}

static void watch_over() {
    std::unique_lock lock(monitor().mutex);
    for (;;) {
        monitor().changed.wait(lock, [] { return !watches().empty(); });
        auto found =
            std::find_if(watches().begin(), watches().end(), [](const Watch &each) { return each.due(); });
        if (found == watches().end()) {
            monitor().sleep(lock);
            continue;
        }
        Watch watch = *found;
        watches().erase(found);
        lock.unlock();
        bool again = watch.handler(value_of(watch.signal), watch.argument);
        lock.lock();
        if (again) watches().push_back(watch);
    }
}

API hsa_status_t hsa_amd_signal_async_handler(hsa_signal_t signal, hsa_signal_condition_t condition,
                                              hsa_signal_value_t other, hsa_amd_signal_handler handler,
                                              void *argument) {
    static std::once_flag started;
    std::call_once(started, [] { start_thread(watch_over).detach(); });
    {
        std::lock_guard lock(monitor().mutex);
        watches().push_back({signal, condition, other, handler, argument});
    }
    monitor().changed.notify_all();
    return OK;
}

/* ---- times --------------------------------------------------------------------------------------- */

API hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *, int) { return OK; }
API hsa_status_t hsa_amd_profiling_async_copy_enable(bool) { return OK; }

API hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t, hsa_signal_t signal,
                                                     hsa_amd_profiling_dispatch_time_t *time) {
    *time = {signal_of(signal)->start_ts, signal_of(signal)->end_ts};
    return OK;
}

API hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t signal,
                                                       hsa_amd_profiling_async_copy_time_t *time) {
    *time = {signal_of(signal)->start_ts, signal_of(signal)->end_ts};
    return OK;
}
