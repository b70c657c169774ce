/* Packets: what the entries of a queue ask for. */
#include "library.h"

#include <algorithm>
#include <iterator>

/* Wait until `ready` is true; answer false if the queue is closed before. */
template <class Ready> static bool wait_until(const Queue *queue, Ready ready) {
    std::unique_lock lock(monitor().mutex);
    while (!ready()) {
        if (is_closed(queue)) return false;
        monitor().sleep(lock);
    }
    return true;
}

static void dispatch(const hsa_kernel_dispatch_packet_t &packet, uint64_t agent) {
    auto *kernel = reinterpret_cast<const Kernel *>(packet.kernel_object);
    if (kernel->twin.run && harsh()) run_cached(kernel->twin, packet, agent);
    else if (kernel->twin.run) kernel->twin.run(packet.kernarg_address, packet);
    else count_unknown_kernel(kernel->name);
    count_launch();
}

static bool is_pending(hsa_signal_t signal) { return signal.handle && value_of(signal) != 0; }
static bool has_come(hsa_signal_t signal) { return signal.handle && value_of(signal) == 0; }

static bool carry_out_between_fences(const void *packet, const Queue *queue, hsa_signal_t *completion) {
    switch (*static_cast<const uint8_t *>(packet)) {
    case HSA_PACKET_TYPE_KERNEL_DISPATCH: {
        auto &kernel = *static_cast<const hsa_kernel_dispatch_packet_t *>(packet);
        dispatch(kernel, agent_of(queue));
        *completion = kernel.completion_signal;
        return true;
    }
    case HSA_PACKET_TYPE_BARRIER_AND: {
        auto &barrier = *static_cast<const hsa_barrier_and_packet_t *>(packet);
        *completion = barrier.completion_signal;
        return wait_until(queue, [&] {
            return std::none_of(std::begin(barrier.dep_signal), std::end(barrier.dep_signal), is_pending);
        });
    }
    case HSA_PACKET_TYPE_BARRIER_OR: {
        auto &barrier = *static_cast<const hsa_barrier_or_packet_t *>(packet);
        *completion = barrier.completion_signal;
        return wait_until(queue, [&] {
            return std::any_of(std::begin(barrier.dep_signal), std::end(barrier.dep_signal), has_come);
        });
    }
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC: {
        auto &barrier = *static_cast<const hsa_amd_barrier_value_packet_t *>(packet);
        *completion = barrier.completion_signal;
        if (barrier.header.AmdFormat != HSA_AMD_PACKET_TYPE_BARRIER_VALUE) {
            unknown("packet of AMD's format %d", barrier.header.AmdFormat);
            return true;
        }
        return wait_until(queue, [&] {
            return !barrier.signal.handle ||
                   holds(value_of(barrier.signal) & barrier.mask, barrier.cond, barrier.value);
        });
    }
    default: unknown("packet of type %d", *static_cast<const uint8_t *>(packet)); return true;
    }
}

static uint32_t scope(uint16_t header, uint32_t lowest_bit) { return header >> lowest_bit & 3; }

bool carry_out(const void *packet, const Queue *queue, hsa_signal_t *completion) {
    uint16_t header = *static_cast<const uint16_t *>(packet);
    bool is_kernel = (header & 0xff) == HSA_PACKET_TYPE_KERNEL_DISPATCH;
    if (is_kernel) acquire(agent_of(queue), scope(header, HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE));
    if (!carry_out_between_fences(packet, queue, completion)) return false;
    if (!is_kernel) acquire(agent_of(queue), scope(header, HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE));
    release(agent_of(queue), scope(header, HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE));
    return true;
}
