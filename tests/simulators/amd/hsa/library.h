/* AMD's HSA runtime library in software, for tests: what its files share.
 *
 * AMD's HIP runtime drives a GPU through this library, which is the lowest layer that runs in a program.
 * Here the GPU is a few threads: one carries out the packets of each queue, one the copies, one tells
 * those who asked that a signal has changed. Kernels run as native twins, found by name or by code object.
 *
 * What threads share lives until the process ends, because AMD's runtime works on while it ends. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

constexpr hsa_status_t OK = HSA_STATUS_SUCCESS;

/* ---- accounts.cpp -------------------------------------------------------------------------------- */

void count_launch();
void count_unknown_kernel(const char *name);

/* Note that something was asked for that is not there, and say so; the answer is for the caller. */
hsa_status_t unknown(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- threads.cpp --------------------------------------------------------------------------------- */

uint64_t now();

/* Run `work` on a thread of its own, which no signal of the operating system interrupts. */
std::thread start_thread(std::function<void()> work);

/* ---- agents.cpp: one CPU and some GPUs, numbered from 1; agent 1 is the CPU ---------------------- */

constexpr uint64_t CPU = 1;

/* ---- memory.cpp ---------------------------------------------------------------------------------- */

enum Kind : uint64_t { FINE, KERNEL_ARGUMENTS, COARSE, GROUP };

constexpr uint64_t MEMORY = 8ull << 30; /* what each agent has */

constexpr hsa_amd_memory_pool_t pool_of(uint64_t agent, Kind kind) { return {agent << 8 | kind}; }
constexpr uint64_t agent_of(hsa_amd_memory_pool_t pool) { return pool.handle >> 8; }

uint64_t memory_available(uint64_t agent);

/* Addresses that the library knows to belong to an agent. */
void note_range(void *address, size_t size, uint64_t agent, Kind kind);

/* Return whether all of it is coarse-grained memory of one GPU, and which GPU. */
bool is_cached(void *address, size_t size, uint64_t *agent);
bool forget_range(void *address, size_t *size, uint64_t *agent);

/* ---- signals.cpp: a monitor that is announced to whenever the value of a signal has changed ------ */

struct Monitor {
    std::mutex mutex;
    std::condition_variable changed;

    void announce() {
        {
            std::lock_guard guard(mutex);
        }
        changed.notify_all();
    }

    /* Sleep until something changes, but not for long: programs may change a value through its address. */
    void sleep(std::unique_lock<std::mutex> &lock) { changed.wait_for(lock, std::chrono::milliseconds(1)); }
};

Monitor &monitor();

inline amd_signal_t *signal_of(hsa_signal_t signal) {
    return reinterpret_cast<amd_signal_t *>(signal.handle);
}

inline int64_t value_of(hsa_signal_t signal) {
    return __atomic_load_n(&signal_of(signal)->value, __ATOMIC_SEQ_CST);
}

bool holds(int64_t value, uint32_t condition, int64_t other);

/* Work that began at `start` is done: note the times and count the signal down. It may be null. */
void complete(hsa_signal_t signal, uint64_t start);

/* ---- queues.cpp ---------------------------------------------------------------------------------- */

struct Queue;

/* The doorbell of a queue has rung: there may be new packets. */
void ring(Queue *queue);
hsa_signal_t doorbell_new(Queue *queue);

bool is_closed(const Queue *queue);
uint64_t agent_of(const Queue *queue);

/* ---- packets.cpp --------------------------------------------------------------------------------- */

/* Carry out a packet, fences included, and return the signal that is to be told. False: the queue was closed
   meanwhile. */
bool carry_out(const void *packet, const Queue *queue, hsa_signal_t *completion);

/* ---- harsh.cpp ----------------------------------------------------------------------------------- */

bool harsh();

/* What happens by chance in harsh mode: the same for each seed, by the number of the stream. */
class Chance {
  public:
    explicit Chance(uint64_t stream);
    std::chrono::microseconds delay();
    size_t below(size_t limit);

  private:
    uint64_t state;
};

/* ---- twins.cpp ----------------------------------------------------------------------------------- */

/* Memory that a kernel reads, and that it may write: `pointer` is the argument that leads to it. */
struct Operand {
    char **pointer;
    char *start;
    size_t size;
    bool written;
    char **end; /* an argument that leads to its end, if there is one */
};

struct Twin {
    void (*run)(const void *arguments, const hsa_kernel_dispatch_packet_t &packet);
    size_t arguments;
    void (*operands)(void *arguments, const hsa_kernel_dispatch_packet_t &packet,
                     std::vector<Operand> &found); /* null if they are not known */
};

/* Where the twins of a code object's kernels are: a library that was compiled from the same source, if the
   folder SOFTWARE_HSA_TWINS has one under the code object's digest; else among those of this library. */
class Twins {
  public:
    Twins(const char *file, size_t size);

    /* The twin of a kernel whose arguments take up so many bytes; without `run` if it has none. */
    Twin find(const char *name, size_t arguments) const;

  private:
    void *compiled = nullptr;
};

/* ---- code.cpp ------------------------------------------------------------------------------------ */

/* What the `kernel_object` of a packet is the address of. */
struct Kernel {
    const char *name;
    Twin twin;
};

/* ---- cached.cpp: the fences of packets, and what they are for; nothing but in harsh mode --------- */

void acquire(uint64_t agent, uint32_t scope);
void release(uint64_t agent, uint32_t scope);

/* Somebody else than a kernel is about to store there. */
void store_from_outside(void *target, size_t size);
void forget_cached(void *memory, size_t size);
void run_cached(const Twin &twin, const hsa_kernel_dispatch_packet_t &packet, uint64_t agent);

#endif
