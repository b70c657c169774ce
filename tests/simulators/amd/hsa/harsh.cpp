/* Harsh mode, if SOFTWARE_HSA_HARSH is a seed: what the rules about packets leave open is used.
 *
 * A queue starts a packet before those ahead of it are done, unless the packet's barrier bit is set; kernels and copies
 * are delayed at random; and there are caches (cached.cpp). The seed decides the delays; the operating system still
 * decides which thread runs first. */
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

Chance::Chance(uint64_t stream) : engine(harsh() ? seed() * 1'000'003 + stream : 0) {}

std::chrono::microseconds Chance::delay() {
    uint64_t number = engine();
    return std::chrono::microseconds(number % 3 ? 0 : number / 3 % 400);
}

size_t Chance::below(size_t limit) { return engine() % limit; }
