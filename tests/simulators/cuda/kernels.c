/* Kernels: native twins of those that the tests, the demo and the benchmarks launch, found by name. */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#include "graphs.h"

/* *cell = *cell * a + b, with at least `pause` nanoseconds between the reading and the writing */
static void step(const struct geometry *geometry UNUSED, void *const *parameters) {
    volatile uint32_t *cell = *(uint32_t *const *)parameters[0];
    uint32_t a = *(const uint32_t *)parameters[1], b = *(const uint32_t *)parameters[2];
    uint64_t pause = *(const uint64_t *)parameters[3];
    uint32_t value = *cell;
    struct timespec left = {(time_t)(pause / 1000000000), (long)(pause % 1000000000)};
    if (pause)
        while (nanosleep(&left, &left)) continue;
    *cell = value * a + b;
}

struct pair {
    signed char a;
    double b;
};

static void store(const struct geometry *geometry, void *const *parameters) {
    double *out = *(double *const *)parameters[0];
    int n = *(const int *)parameters[1];
    float f = *(const float *)parameters[2];
    struct pair p = *(const struct pair *)parameters[3];
    int threads = (int)(geometry->grid[0] * geometry->block[0]);
    for (int i = 0; i < threads && i < n; i++) out[i] = i * f + p.a + p.b;
}

static void geometry(const struct geometry *geometry, void *const *parameters) {
    unsigned *out = *(unsigned *const *)parameters[0];
    memcpy(out, geometry->grid, sizeof geometry->grid);
    memcpy(out + 3, geometry->block, sizeof geometry->block);
    out[6] = geometry->shared;
}

static void diffuse(const struct geometry *geometry, void *const *parameters) {
    const double *source = *(double *const *)parameters[0];
    double *target = *(double *const *)parameters[1];
    int size = *(const int *)parameters[2], first = *(const int *)parameters[3],
        last = *(const int *)parameters[4];
    int columns = (int)(geometry->grid[0] * geometry->block[0]),
        rows = (int)(geometry->grid[1] * geometry->block[1]);
    for (int y = first; y < last && y < first + rows; y++)
        for (int x = 1; x < size - 1 && x <= columns; x++) {
            size_t row = (size_t)size, i = (size_t)y * row + (size_t)x;
            double here = source[i];
            double around = source[i - 1] + source[i + 1] + source[i - row] + source[i + row];
            target[i] = here + 0.2 * (around - 4.0 * here);
        }
}

/* What `graphed` finds arguments in: sums, with the addresses of the operands in all kinds of places. */
static void sum(double *out, const double *x, const double *y, int n) {
    for (int i = 0; i < n; i++) out[i] = x[i] + y[i];
}

static void plus(const struct geometry *geometry UNUSED, void *const *parameters) {
    sum(*(double **)parameters[0], *(double **)parameters[1], *(double **)parameters[2], *(int *)parameters[3]);
}

struct operands {
    double *out;
    int n;
    const double *x, *y;
};

static void plus_struct(const struct geometry *geometry UNUSED, void *const *parameters) {
    const struct operands *all = parameters[0];
    sum(all->out, all->x, all->y, all->n);
}

struct __attribute__((packed)) packed_operands {
    int n;
    double *out;
    const double *x, *y;
};

static void plus_packed(const struct geometry *geometry UNUSED, void *const *parameters) {
    const struct packed_operands *all = parameters[0];
    sum(all->out, all->x, all->y, all->n);
}

static void plus_table(const struct geometry *geometry UNUSED, void *const *parameters) {
    double *const *table = *(double **const *)parameters[1];
    sum(*(double **)parameters[0], table[0], table[1], *(int *)parameters[2]);
}

static void plus_from(const struct geometry *geometry UNUSED, void *const *parameters) {
    const double *x = (const double *)(*(uintptr_t *)parameters[1] + *(uintptr_t *)parameters[2]);
    sum(*(double **)parameters[0], x, *(double **)parameters[3], *(int *)parameters[4]);
}

static void plus_halves(const struct geometry *geometry UNUSED, void *const *parameters) {
    uint64_t low = *(const uint32_t *)parameters[1], high = *(const uint32_t *)parameters[2];
    const double *x = (const double *)(uintptr_t)(high << 32 | low);
    sum(*(double **)parameters[0], x, *(double **)parameters[3], *(int *)parameters[4]);
}

static void plus_masked(const struct geometry *geometry UNUSED, void *const *parameters) {
    uint64_t address = *(const uint64_t *)parameters[1] ^ *(const uint64_t *)parameters[2];
    sum(*(double **)parameters[0], (const double *)(uintptr_t)address, *(double **)parameters[3],
        *(int *)parameters[4]);
}

static void plus_until(const struct geometry *geometry UNUSED, void *const *parameters) {
    const double *x = *(double **)parameters[1], *end = *(double **)parameters[2];
    sum(*(double **)parameters[0], x, *(double **)parameters[3], (int)(end - x));
}

/* assign(double*, double const*), and the same with both in a structure of 16 or of 128 bytes */
static void assign(const struct geometry *geometry UNUSED, void *const *parameters) {
    **(double **)parameters[0] = **(const double **)parameters[1];
}

static void assign_views(const struct geometry *geometry UNUSED, void *const *parameters) {
    double *const *views = parameters[0];
    *views[0] = *views[1];
}

static void put_down(const struct geometry *geometry UNUSED, void *const *parameters) {
    const double **table = *(const double ***)parameters[0];
    table[0] = *(const double **)parameters[1];
    table[1] = *(const double **)parameters[2];
}

/* What the library sets conditions with. */
static void test_flag(const struct geometry *geometry UNUSED, void *const *parameters) {
    static const uint64_t nothing;
    uint64_t *count = *(uint64_t *const *)parameters[3];
    *count = *(const uint32_t *)parameters[5] ? 0 : *count + 1;
    bool is_true = memcmp(*(const void *const *)parameters[1], &nothing, *(const uint32_t *)parameters[2]);
    condition_set(*(const uint64_t *)parameters[0], is_true && *count < *(const uint64_t *)parameters[4]);
}

static void nothing(const struct geometry *geometry UNUSED, void *const *parameters UNUSED) {}

static const struct native NATIVES[] = {
    {"step", 4, {8, 4, 4, 8}, step},
    {"store", 4, {8, 4, 4, sizeof(struct pair)}, store},
    {"geometry", 1, {8}, geometry},
    {"nothing", 0, {0}, nothing},
    {"accelerator_graph_test_flag", 6, {8, 8, 4, 8, 8, 4}, test_flag},
    {"plus", 4, {8, 8, 8, 4}, plus},
    {"plus_struct", 1, {sizeof(struct operands)}, plus_struct},
    {"plus_packed", 1, {sizeof(struct packed_operands)}, plus_packed},
    {"plus_table", 3, {8, 8, 4}, plus_table},
    {"plus_from", 5, {8, 8, 8, 8, 4}, plus_from},
    {"plus_halves", 5, {8, 4, 4, 8, 4}, plus_halves},
    {"plus_masked", 5, {8, 8, 8, 8, 4}, plus_masked},
    {"plus_until", 4, {8, 8, 8, 8}, plus_until},
    {"put_down", 3, {8, 8, 8}, put_down},
    {"ncclDevKernel_plus", 4, {8, 8, 8, 4}, plus},
    {"_Z6assignPdPKd", 2, {8, 8}, assign},
    {"_Z6assign5Views", 1, {16}, assign_views},
    {"_Z6assign3Map", 1, {128}, assign_views},
    {"diffuse", 5, {8, 8, 4, 4, 4}, diffuse},
};

const struct native *native_find(const char *name) {
    for (size_t i = 0; i < sizeof NATIVES / sizeof *NATIVES; i++)
        if (!strcmp(NATIVES[i].name, name)) return &NATIVES[i];
    return NULL;
}
