/* Harsh mode, if SOFTWARE_HSA_HARSH is a seed: everything happens that the rules for packets leave open.
 *
 * A queue starts a packet before those ahead of it are done, unless the packet's barrier bit is set. Kernels
 * and copies are delayed at random, and there are caches (cached.cpp). The seed decides the delays; which
 * thread runs first is still up to the operating system. */
#include "library.h"

#include <cstdio>
#include <cstdlib>

static uint64_t seed() {
    static const uint64_t chosen = [] {
        uint64_t number = strtoull(getenv("SOFTWARE_HSA_HARSH"), nullptr, 10);
        fprintf(stderr, "software HSA: harsh, SOFTWARE_HSA_HARSH=%lu\n", number);
        return number;
    }();
    return chosen;
}

bool harsh() {
    static const bool is = [] {
        const char *value = getenv("SOFTWARE_HSA_HARSH");
        return value && *value;
    }();
    return is;
}

Chance::Chance(uint64_t stream) : state(harsh() ? seed() << 32 ^ stream : 0) {}

/* SplitMix64 */
size_t Chance::below(size_t limit) {
    uint64_t number = state += 0x9e3779b97f4a7c15;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return (number ^ number >> 31) % limit;
}

std::chrono::microseconds Chance::delay() {
    return std::chrono::microseconds(below(3) ? 0 : below(400)); /* of three packets one is late */
}
