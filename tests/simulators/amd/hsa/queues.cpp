/* Queues: rings of packets, each with a thread that carries them out in order, or starts them if harsh. */
#include "library.h"

#include <atomic>
#include <memory>

struct alignas(64) Packet {
    uint16_t header;
    char rest[62];

    uint8_t type() const { return __atomic_load_n(&header, __ATOMIC_ACQUIRE) & 0xff; }
};

struct Queue {
    amd_queue_t shared; /* first, since AMD's runtime takes the address of the one for that of the other */
    char room[4096];    /* for what newer versions have behind it */
    std::mutex mutex;
    std::condition_variable rung;
    std::atomic<bool> closed;
    std::unique_ptr<Packet[]> packets;
    std::thread thread;
    uint64_t agent;
    std::atomic<int> running; /* kernels that the thread has started, in harsh mode */
};

static Queue *queue_of(const hsa_queue_t *queue) {
    return reinterpret_cast<Queue *>(const_cast<hsa_queue_t *>(queue));
}

static Packet *packet_at(Queue *queue, uint64_t index) {
    return &queue->packets[index & (queue->shared.hsa_queue.size - 1)];
}

void ring(Queue *queue) {
    {
        std::lock_guard guard(queue->mutex);
    }
    queue->rung.notify_one();
}

bool is_closed(const Queue *queue) { return queue->closed; }
uint64_t agent_of(const Queue *queue) { return queue->agent; }

static bool has_barrier(const Packet &packet) { return packet.header >> HSA_PACKET_HEADER_BARRIER & 1; }

/* Wait until the kernels that were started are done; false if the queue is closed before. */
static bool wait_for_kernels(Queue *queue) {
    if (!queue->running) return true;
    std::unique_lock lock(monitor().mutex);
    while (queue->running && !queue->closed) monitor().sleep(lock);
    return !queue->running;
}

/* Carry out a kernel on a thread of its own, after a while. */
static void start_kernel(Queue *queue, const Packet &packet, std::chrono::microseconds delay) {
    queue->running++;
    start_thread([=] {
        std::this_thread::sleep_for(delay);
        uint64_t start = now();
        hsa_signal_t completion = {};
        carry_out(&packet, queue, &completion);
        complete(completion, start);
        queue->running--;
        monitor().announce();
    }).detach();
}

static void work_off(Queue *queue) {
    Chance chance(queue->shared.hsa_queue.id);
    for (uint64_t index = 0;; index++) {
        Packet *packet = packet_at(queue, index);
        {
            std::unique_lock lock(queue->mutex);
            queue->rung.wait(lock,
                             [=] { return queue->closed || packet->type() != HSA_PACKET_TYPE_INVALID; });
        }
        if (queue->closed) break;
        uint64_t start = now();
        hsa_signal_t completion = {};
        Packet given = *packet;
        if (has_barrier(given) && !wait_for_kernels(queue)) break;
        if (harsh() && packet->type() == HSA_PACKET_TYPE_KERNEL_DISPATCH)
            start_kernel(queue, given, chance.delay());
        else if (!carry_out(&given, queue, &completion)) break;
        __atomic_store_n(&packet->header, HSA_PACKET_TYPE_INVALID, __ATOMIC_RELEASE);
        __atomic_store_n(&queue->shared.read_dispatch_id, index + 1, __ATOMIC_RELEASE);
        complete(completion, start);
    }
}

API hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                                  void (*)(hsa_status_t, hsa_queue_t *, void *), void *, uint32_t, uint32_t,
                                  hsa_queue_t **made) {
    static std::atomic<uint64_t> last_id;
    auto *queue = new Queue{};
    queue->agent = agent.handle;
    queue->packets = std::make_unique<Packet[]>(size);
    for (uint32_t i = 0; i < size; i++) queue->packets[i].header = HSA_PACKET_TYPE_INVALID;
    hsa_queue_t &ring = queue->shared.hsa_queue;
    ring.type = type;
    ring.features = HSA_QUEUE_FEATURE_KERNEL_DISPATCH;
    ring.base_address = queue->packets.get();
    ring.size = size;
    ring.id = ++last_id;
    ring.doorbell_signal = doorbell_new(queue);
    queue->thread = start_thread([=] { work_off(queue); });
    *made = &ring;
    return OK;
}

/* The packet that is being carried out is the last one; what it waits for need not come. */
API hsa_status_t hsa_queue_destroy(hsa_queue_t *which) {
    Queue *queue = queue_of(which);
    queue->closed = true;
    ring(queue);
    monitor().announce();
    queue->thread.join();
    while (queue->running) std::this_thread::yield();
    hsa_signal_destroy(queue->shared.hsa_queue.doorbell_signal);
    delete queue;
    return OK;
}

API uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t count) {
    return __atomic_fetch_add(&queue_of(queue)->shared.write_dispatch_id, count, __ATOMIC_SEQ_CST);
}

API uint64_t hsa_queue_load_write_index_relaxed(const hsa_queue_t *queue) {
    return __atomic_load_n(&queue_of(queue)->shared.write_dispatch_id, __ATOMIC_RELAXED);
}

API uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue) {
    return __atomic_load_n(&queue_of(queue)->shared.read_dispatch_id, __ATOMIC_ACQUIRE);
}

API uint64_t hsa_queue_load_read_index_relaxed(const hsa_queue_t *queue) {
    return hsa_queue_load_read_index_scacquire(queue);
}

API hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t *, hsa_amd_queue_priority_t) { return OK; }
API hsa_status_t hsa_amd_queue_cu_set_mask(const hsa_queue_t *, uint32_t, const uint32_t *) { return OK; }
