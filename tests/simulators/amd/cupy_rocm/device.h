/* What a kernel in HIP C++ finds on the device, for one that the host's compiler turns into a twin.
 *
 * The blocks of a launch run one after another, in one thread of the operating system. So do the threads of a
 * block, unless the kernel makes them wait for each other: then they are fibers. */
#pragma once

#include <hsa/hsa.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <math.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};

struct dim3 : uint3 {};

static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;

/* ---- threads that wait for each other ------------------------------------------------------------ */

namespace device {

constexpr size_t STACK = 64 << 10;

struct Fiber {
    ucontext_t context;
    uint3 index;
    bool done;
};

static thread_local ucontext_t scheduler;
static thread_local Fiber *running;
static thread_local const std::function<void()> *body;

static void run_fiber() {
    (*body)();
    running->done = true;
}

/* Let all threads of a block run up to their next wait, until all are done. */
static void run_together(std::vector<uint3> threads, const std::function<void()> &work) {
    size_t size = threads.size() * STACK;
    void *stacks = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1, 0);
    if (stacks == MAP_FAILED) abort();
    std::vector<Fiber> fibers(threads.size());
    body = &work;
    for (size_t i = 0; i < fibers.size(); i++) {
        getcontext(&fibers[i].context);
        fibers[i].index = threads[i];
        fibers[i].context.uc_stack = {static_cast<char *>(stacks) + i * STACK, 0, STACK};
        fibers[i].context.uc_link = &scheduler;
        makecontext(&fibers[i].context, run_fiber, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (Fiber &each : fibers) {
            if (each.done) continue;
            running = &each;
            threadIdx = each.index;
            swapcontext(&scheduler, &each.context);
            left |= !each.done;
        }
    }
    running = nullptr;
    munmap(stacks, size);
}

} // namespace device

[[maybe_unused]] static void __syncthreads() {
    if (!device::running) {
        fprintf(stderr, "software HSA: a twin waits for its block, and its source does not show it\n");
        abort();
    }
    swapcontext(&device::running->context, &device::scheduler);
}

/* ---- a launch ------------------------------------------------------------------------------------ */

namespace device {

/* The next of the arguments, which lie one behind another, each aligned as its type. */
template <class Type> Type next(const char *arguments, size_t &offset) {
    offset = (offset + alignof(Type) - 1) & ~(alignof(Type) - 1);
    auto *place = reinterpret_cast<const Type *>(arguments + offset);
    offset += sizeof(Type);
    return *place;
}

template <class... Types>
void launch(void (*kernel)(Types...), bool together, const void *arguments,
            const hsa_kernel_dispatch_packet_t &packet) {
    size_t offset = 0;
    auto *from = static_cast<const char *>(arguments);
    std::tuple<std::remove_const_t<Types>...> values{next<Types>(from, offset)...};
    std::function<void()> work = [&] { std::apply(kernel, values); };
    blockDim = {{packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z}};
    gridDim = {{packet.grid_size_x / blockDim.x, packet.grid_size_y / blockDim.y,
                packet.grid_size_z / blockDim.z}};
    std::vector<uint3> threads;
    for (unsigned z = 0; z < blockDim.z; z++)
        for (unsigned y = 0; y < blockDim.y; y++)
            for (unsigned x = 0; x < blockDim.x; x++) threads.push_back({x, y, z});
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                if (together) {
                    run_together(threads, work);
                    continue;
                }
                for (uint3 each : threads) {
                    threadIdx = each;
                    work();
                }
            }
}

} // namespace device

#define TWIN(kernel, together)                                                                               \
    extern "C" __attribute__((visibility("default"))) void twin_##kernel(                                    \
        const void *arguments, const hsa_kernel_dispatch_packet_t &packet) {                                 \
        device::launch(kernel, together, arguments, packet);                                                 \
    }

/* ---- functions ----------------------------------------------------------------------------------- */

[[maybe_unused]] static int __popc(unsigned value) { return __builtin_popcount(value); }
[[maybe_unused]] static int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
[[maybe_unused]] static long long __double_as_longlong(double value) {
    long long bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
[[maybe_unused]] static double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Type> static Type atomicAdd(Type *address, std::common_type_t<Type> value) {
    Type old, sum;
    __atomic_load(address, &old, __ATOMIC_SEQ_CST);
    do sum = old + value;
    while (!__atomic_compare_exchange(address, &old, &sum, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}

[[maybe_unused]] static unsigned atomicCAS(unsigned *address, unsigned expected, unsigned value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
