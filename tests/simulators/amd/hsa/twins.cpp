/* Twins: what kernels do, natively. Those that the tests, the demo and the benchmarks launch, and those
 * that AMD's runtime fills and copies memory with. */
#include "library.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

using Packet = hsa_kernel_dispatch_packet_t;
using Operands = std::vector<Operand>;

template <class Type> static Operand operand(Type *&pointer, size_t first, size_t count, bool written) {
    auto **place = reinterpret_cast<char **>(const_cast<std::remove_cv_t<Type> **>(&pointer));
    return {place, *place + first * sizeof(Type), count * sizeof(Type), written, nullptr};
}

/* ---- of the tests -------------------------------------------------------------------------------- */

struct Step {
    volatile uint32_t *cell;
    uint32_t a, b;
    uint64_t pause;
};

/* *cell = *cell * a + b, with at least `pause` nanoseconds between the reading and the writing */
static void step(const Step &given, const Packet &) {
    uint32_t value = *given.cell;
    timespec left = {time_t(given.pause / 1'000'000'000), long(given.pause % 1'000'000'000)};
    if (given.pause)
        while (nanosleep(&left, &left)) continue;
    *given.cell = value * given.a + given.b;
}

static void name_operands(Step &given, const Packet &, Operands &found) {
    found = {operand(given.cell, 0, 1, true)};
}

struct Store {
    double *out;
    int32_t n;
    float factor;
    struct {
        signed char a;
        double b;
    } pair;
};

static void store(const Store &given, const Packet &packet) {
    for (uint32_t i = 0; i < packet.grid_size_x && int32_t(i) < given.n; i++)
        given.out[i] = float(i) * given.factor + given.pair.a + given.pair.b;
}

static void name_operands(Store &given, const Packet &packet, Operands &found) {
    found = {operand(given.out, 0, std::min(packet.grid_size_x, uint32_t(std::max(given.n, 0))), true)};
}

struct Geometry {
    uint32_t *out;
};

/* The numbers of blocks and of their threads, and the bytes of memory that the threads of a block share. */
static void geometry(const Geometry &given, const Packet &packet) {
    uint32_t grid[] = {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
    uint32_t block[] = {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z};
    for (int i = 0; i < 3; i++) {
        given.out[i] = grid[i] / block[i];
        given.out[3 + i] = block[i];
    }
    given.out[6] = packet.group_segment_size;
}

static void name_operands(Geometry &given, const Packet &, Operands &found) {
    found = {operand(given.out, 0, 7, true)};
}

struct Meet {
    volatile uint32_t *mine;
    const volatile uint32_t *other;
};

/* Set *mine, and wait until somebody has set *other. */
static void meet(const Meet &given, const Packet &) {
    timespec moment = {0, 100'000};
    *given.mine = 1;
    while (!*given.other) nanosleep(&moment, nullptr);
}

/* Two kernels can't meet by way of a cache. */
static void name_operands(Meet &, const Packet &, Operands &) {}

struct Nothing {};

static void name_operands(Nothing &, const Packet &, Operands &) {}

static void nothing(const Nothing &, const Packet &) {}

/* ---- of the demo --------------------------------------------------------------------------------- */

struct Diffuse {
    const double *source;
    double *target;
    int32_t size, first, last;
};

static void diffuse(const Diffuse &given, const Packet &packet) {
    int64_t size = given.size, rows = packet.grid_size_y, columns = packet.grid_size_x;
    for (int64_t y = given.first; y < given.last && y < given.first + rows; y++)
        for (int64_t x = 1; x < size - 1 && x <= columns; x++) {
            const double *at = given.source + y * size + x;
            double here = at[0];
            double around = at[-1] + at[1] + at[-size] + at[size];
            given.target[y * size + x] = here + 0.2 * (around - 4.0 * here);
        }
}

static void name_operands(Diffuse &given, const Packet &packet, Operands &found) {
    size_t size = given.size, rows = std::min<size_t>(given.last - given.first, packet.grid_size_y);
    found = {operand(given.source, 0, size * size, false),
             operand(given.target, given.first * size, rows * size, true)};
}

/* ---- of AMD's runtime: the arguments that versions 6.4 and 7.2 have in common -------------------- */

struct Fill {
    char *target;
    const char *pattern;
    uint32_t count, bytes; /* of the pattern's elements */
    char *end;
    uint32_t stride;
};

static void fill(const Fill &given, const Packet &) {
    size_t size = size_t{given.count} * given.bytes;
    for (char *each = given.target; each < given.end; each += size)
        memcpy(each, given.pattern, size);
}

static void name_operands(Fill &given, const Packet &, Operands &found) {
    size_t size = size_t{given.count} * given.bytes;
    size_t pieces = (size_t(given.end - given.target) + size - 1) / size;
    found = {operand(given.target, 0, pieces * size, true)};
    found[0].end = &given.end;
}

struct Copy {
    const char *source;
    char *target;
    uint64_t size;
};

static void copy(const Copy &given, const Packet &) { memmove(given.target, given.source, given.size); }

static void name_operands(Copy &given, const Packet &, Operands &found) {
    found = {operand(given.source, 0, given.size, false), operand(given.target, 0, given.size, true)};
}

/* ---- by name ------------------------------------------------------------------------------------- */

template <class Arguments, void run(const Arguments &, const Packet &)>
static void adapted(const void *arguments, const Packet &packet) {
    run(*static_cast<const Arguments *>(arguments), packet);
}

template <class Arguments> static void operands_of(void *arguments, const Packet &packet, Operands &found) {
    name_operands(*static_cast<Arguments *>(arguments), packet, found);
}

struct Known {
    const char *name;
    Twin twin;
};

template <class Arguments, void run(const Arguments &, const Packet &)>
constexpr Known known(const char *name) {
    size_t size = std::is_empty_v<Arguments> ? 0 : sizeof(Arguments);
    return {name, {adapted<Arguments, run>, size, operands_of<Arguments>}};
}

static constexpr Known KNOWN[] = {
    known<Step, step>("step"),
    known<Store, store>("store"),
    known<Geometry, geometry>("geometry"),
    known<Meet, meet>("meet"),
    known<Nothing, nothing>("nothing"),
    known<Diffuse, diffuse>("diffuse"),
    known<Fill, fill>("__amd_rocclr_fillBufferAligned"),
    known<Copy, copy>("__amd_rocclr_copyBuffer"),
};

/* ---- by code object ------------------------------------------------------------------------------ */

/* FNV-1a with 64 bits, without the zeros at the end: CuPy cuts off one of them. */
static uint64_t digest_of(const char *file, size_t size) {
    while (size && !file[size - 1]) size--;
    uint64_t digest = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++) digest = (digest ^ uint8_t(file[i])) * 0x100000001b3;
    return digest;
}

Twins::Twins(const char *file, size_t size) {
    const char *folder = getenv("SOFTWARE_HSA_TWINS");
    if (!folder) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%016lx.so", folder, digest_of(file, size));
    if (access(path, F_OK)) return;
    compiled = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!compiled) unknown("library of twins: %s", dlerror());
}

Twin Twins::find(const char *name, size_t arguments) const {
    if (compiled) {
        char symbol[1024];
        snprintf(symbol, sizeof symbol, "twin_%s", name);
        return {reinterpret_cast<decltype(Twin::run)>(dlsym(compiled, symbol)), arguments, nullptr};
    }
    arguments = (arguments + 7) & ~size_t{7}; /* as in a structure, with the padding at its end */
    for (const Known &each : KNOWN)
        if (!strcmp(each.name, name) && each.twin.arguments <= arguments) return each.twin;
    return {};
}
