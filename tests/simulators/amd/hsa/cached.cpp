/* Caches, in harsh mode: between the kernels of an agent and its coarse-grained memory.
 *
 * What a kernel stores is seen by nobody else at first. A release fence at the scope of the agent shows it to
 * the agent's kernels; one at the scope of the system puts it in memory, where hosts and copies look. A fence
 * is for the stores of all kernels of the agent that are done. What was shown since the agent's last acquire
 * fence, a kernel sees as it was before; a fence at the scope of the agent is enough for what the agent's own
 * kernels stored, not for what others did. A device may show everything earlier; this one never does.
 * Fine-grained memory has no cache. */
#include "library.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

struct Bytes {
    char *start;
    std::vector<char> bytes;
    bool from_outside; /* stored by anything but a kernel of the agent */

    char *end() { return start + bytes.size(); }

    /* Copy what both have in common to `target`, which stands for the memory at `from`. */
    void overlay(char *target, char *from, size_t size) {
        char *first = std::max(start, from), *last = std::min(end(), from + size);
        if (first >= last) return;
        memcpy(target + (first - from), bytes.data() + (first - start), size_t(last - first));
    }
};

struct Cache {
    std::vector<Bytes> stored, released, outdated; /* in order */

    std::vector<char> seen(char *start, size_t size) {
        std::vector<char> found(start, start + size);
        for (Bytes &each : released) each.overlay(found.data(), start, size);
        for (auto each = outdated.rbegin(); each != outdated.rend(); ++each)
            each->overlay(found.data(), start, size);
        return found;
    }

    /* Other bytes are about to be shown: until the next acquire, kernels see these. */
    void keep(char *start, size_t size, bool from_outside) {
        outdated.push_back({start, seen(start, size), from_outside});
    }
};

static std::mutex mutex;

static std::map<uint64_t, Cache> &caches() {
    static auto &the = *new std::map<uint64_t, Cache>;
    return the;
}

static void show(Cache &cache) {
    for (Bytes &each : cache.stored) {
        cache.keep(each.start, each.bytes.size(), false);
        cache.released.push_back(std::move(each));
    }
    cache.stored.clear();
}

static void write_back(uint64_t agent, Cache &cache) {
    for (Bytes &each : cache.released) {
        for (auto &[other, others] : caches())
            if (other != agent) others.keep(each.start, each.bytes.size(), true);
        memcpy(each.start, each.bytes.data(), each.bytes.size());
    }
    cache.released.clear();
}

void acquire(uint64_t agent, uint32_t scope) {
    if (!harsh() || scope == HSA_FENCE_SCOPE_NONE) return;
    std::lock_guard lock(mutex);
    std::erase_if(caches()[agent].outdated,
                  [=](const Bytes &each) { return scope == HSA_FENCE_SCOPE_SYSTEM || !each.from_outside; });
}

void release(uint64_t agent, uint32_t scope) {
    if (!harsh() || scope == HSA_FENCE_SCOPE_NONE) return;
    std::lock_guard lock(mutex);
    show(caches()[agent]);
    if (scope == HSA_FENCE_SCOPE_SYSTEM) write_back(agent, caches()[agent]);
}

void store_from_outside(void *target, size_t size) {
    uint64_t agent;
    if (!harsh() || !is_cached(target, size, &agent)) return;
    std::lock_guard lock(mutex);
    caches()[agent].keep(static_cast<char *>(target), size, true);
}

void forget_cached(void *memory, size_t size) {
    if (!harsh()) return;
    auto *start = static_cast<char *>(memory);
    auto within = [=](Bytes &each) { return start <= each.start && each.start < start + size; };
    std::lock_guard lock(mutex);
    for (auto &[agent, cache] : caches())
        for (auto *each : {&cache.stored, &cache.released, &cache.outdated}) std::erase_if(*each, within);
}

void run_cached(const Twin &twin, const hsa_kernel_dispatch_packet_t &packet, uint64_t agent) {
    auto *given = static_cast<const char *>(packet.kernarg_address);
    if (!twin.operands) { /* nobody knows what it reads and writes: let it see all, and all see it */
        acquire(agent, HSA_FENCE_SCOPE_SYSTEM);
        release(agent, HSA_FENCE_SCOPE_SYSTEM);
        acquire(agent, HSA_FENCE_SCOPE_SYSTEM);
        twin.run(given, packet);
        return;
    }
    std::vector<char> arguments(given, given + twin.arguments);
    std::vector<Operand> operands;
    twin.operands(arguments.data(), packet, operands);
    std::erase_if(operands, [=](const Operand &each) {
        uint64_t owner;
        return !each.size || !is_cached(each.start, each.size, &owner) || owner != agent;
    });
    std::vector<Bytes> copies;
    {
        std::lock_guard lock(mutex);
        for (Operand &each : operands)
            copies.push_back({each.start, caches()[agent].seen(each.start, each.size), false});
    }
    for (size_t i = 0; i < operands.size(); i++) {
        ptrdiff_t away = copies[i].bytes.data() - operands[i].start;
        *operands[i].pointer += away;
        if (operands[i].end) *operands[i].end += away;
    }
    twin.run(arguments.data(), packet);
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < operands.size(); i++)
        if (operands[i].written) caches()[agent].stored.push_back(std::move(copies[i]));
}
