// The SYCL runtime's queues and graphs as functions of C, which Python calls through ctypes.
//
// Every function returns 0, or a code of `sycl::errc` (-1 for other failures), and leaves what happened in
// `sycl_graph_message`. No exception leaves a function. Queues and devices are the `sycl::queue *` and
// `sycl::device *` inside dpctl's objects. What a function makes, it stores before it returns, so that Python
// can't lose it to an interrupt.

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sycl/sycl.hpp>

namespace graphs = sycl::ext::oneapi::experimental;

using Graph = graphs::command_graph<graphs::graph_state::modifiable>;
using Executable = graphs::command_graph<graphs::graph_state::executable>;
using Node = graphs::node;

namespace {

constexpr int other_failure = -1;
thread_local std::string message;

int failed(int code, const char *text) noexcept {
  try {
    message = text;
  } catch (...) { // no memory for the text
    message.clear();
  }
  return code;
}

template <typename Function> int guarded(Function function) noexcept {
  try {
    function();
    return 0;
  } catch (const sycl::exception &error) {
    const int code = error.category() == sycl::sycl_category() ? error.code().value() : 0;
    return failed(code ? code : other_failure, error.what());
  } catch (const std::bad_alloc &error) {
    return failed(static_cast<int>(sycl::errc::memory_allocation), error.what());
  } catch (const std::exception &error) {
    return failed(other_failure, error.what());
  } catch (...) {
    return failed(other_failure, "an exception of an unknown type");
  }
}

// Delete what a handle stands for, once, however often it is called.
template <typename Object> int deleted(Object **handle) noexcept {
  return guarded([=] { delete std::exchange(*handle, nullptr); });
}

using Edge = std::pair<std::size_t, std::size_t>;

// Where a node is in a list. Nodes can only be compared; what is wanted mostly stands shortly before `near`.
std::size_t index_of(const std::vector<Node> &nodes, const Node &wanted, std::size_t near) {
  for (std::size_t index = near; index-- > 0;)
    if (nodes[index] == wanted)
      return index;
  while (nodes.at(near) != wanted)
    ++near;
  return near;
}

// The dependencies of all nodes, those of each node together: the indices of its predecessor and of itself.
std::vector<Edge> dependencies(const std::vector<Node> &nodes) {
  std::vector<Edge> edges;
  for (std::size_t index = 0; index < nodes.size(); ++index)
    for (const Node &before : nodes[index].get_predecessors())
      edges.emplace_back(index_of(nodes, before, index), index);
  return edges;
}

} // namespace

extern "C" {

const char *sycl_graph_message() { return message.c_str(); }

int sycl_graph_supported(sycl::device *device, int *answer) {
  return guarded([=] {
    *answer = device->has(sycl::aspect::ext_oneapi_graph) || device->has(sycl::aspect::ext_oneapi_limited_graph);
  });
}

// The number of the capture that a queue takes part in; 0 if there is none.
int sycl_graph_capture_of(sycl::queue *queue, std::uint64_t *capture) {
  return guarded([=] {
    const bool recording = queue->ext_oneapi_get_state() == graphs::queue_state::recording;
    *capture = recording ? queue->ext_oneapi_get_graph().get_id() + 1 : 0;
  });
}

int sycl_graph_begin(sycl::queue *queue, Graph **graph, std::uint64_t *capture) {
  return guarded([=] {
    auto *made = *graph = new Graph(queue->get_context(), queue->get_device());
    *capture = made->get_id() + 1;
    made->begin_recording(*queue);
  });
}

// End the capture on all queues that take part.
int sycl_graph_end(Graph *graph) {
  return guarded([=] { graph->end_recording(); });
}

// Whether the latest node of a queue, which has recorded one, comes after all work in the graph.
int sycl_graph_joined(Graph *graph, sycl::queue *queue, int *answer) {
  return guarded([=] {
    const auto nodes = graph->get_nodes();
    std::vector<std::vector<std::size_t>> before(nodes.size());
    for (const auto &[source, target] : dependencies(nodes))
      before[target].push_back(source);
    const Node last = Node::get_node_from_event(queue->ext_oneapi_get_last_event().value());
    std::vector<bool> reached(nodes.size());
    std::vector<std::size_t> next{index_of(nodes, last, nodes.size())};
    while (!next.empty()) {
      const std::size_t index = next.back();
      next.pop_back();
      if (!reached[index])
        next.insert(next.end(), before[index].begin(), before[index].end());
      reached[index] = true;
    }
    *answer = 1;
    for (std::size_t index = 0; index < nodes.size(); ++index)
      if (!reached[index] && nodes[index].get_type() != graphs::node_type::ext_oneapi_barrier)
        *answer = 0;
  });
}

int sycl_graph_delete(Graph **graph) { return deleted(graph); }

// How many nodes and dependencies there are. `edges` may be null.
int sycl_graph_size(Graph *graph, std::size_t *nodes, std::size_t *edges) {
  return guarded([=] {
    const auto found = graph->get_nodes();
    *nodes = found.size();
    if (!edges)
      return;
    *edges = 0;
    for (const Node &node : found)
      *edges += node.get_predecessors().size();
  });
}

// As many as `sycl_graph_size` says: a type for each node, two indices for each dependency.
int sycl_graph_nodes(Graph *graph, int *types, std::size_t *edges) {
  return guarded([=, edge = edges]() mutable {
    const auto nodes = graph->get_nodes();
    for (std::size_t index = 0; index < nodes.size(); ++index)
      types[index] = static_cast<int>(nodes[index].get_type());
    for (const auto &[source, target] : dependencies(nodes)) {
      *edge++ = source;
      *edge++ = target;
    }
  });
}

// Draw the graph in the DOT language. The runtime does not report whether it could write the file.
int sycl_graph_print(Graph *graph, const char *path, int verbose) {
  return guarded([=] { graph->print_graph(std::string(path), verbose != 0); });
}

int sycl_graph_finalize(Graph *graph, Executable **executable) {
  return guarded([=] { *executable = new Executable(graph->finalize()); });
}

int sycl_graph_replay(Executable *executable, sycl::queue *queue) {
  return guarded([=] { queue->ext_oneapi_graph(*executable); });
}

int sycl_graph_delete_executable(Executable **executable) { return deleted(executable); }

// An event at the end of a queue's work. `barrier`: also if the queue has recorded nothing yet.
int sycl_graph_record(sycl::queue *queue, int barrier, sycl::event **event) {
  return guarded([=] {
    *event = new sycl::event(barrier ? queue->ext_oneapi_submit_barrier()
                                     : queue->ext_oneapi_get_last_event().value());
  });
}

// `joins`: the graph of the capture that the queue enters by this; null if there is none. The runtime would let
// the queue enter by itself, but then not know its latest event.
int sycl_graph_wait_event(sycl::queue *queue, sycl::event *event, Graph *joins) {
  return guarded([=] {
    if (joins)
      joins->begin_recording(*queue);
    queue->ext_oneapi_submit_barrier({*event});
  });
}

int sycl_graph_delete_event(sycl::event **event) { return deleted(event); }

int sycl_graph_synchronize(sycl::queue *queue) {
  return guarded([=] { queue->wait_and_throw(); });
}

int sycl_graph_query(sycl::queue *queue, int *done) {
  return guarded([=] { *done = queue->khr_empty(); });
}

// Whether an address is that of USM memory in the context of a queue.
int sycl_graph_usm(sycl::queue *queue, const void *address, int *answer) {
  return guarded([=] {
    *answer = sycl::get_pointer_type(address, queue->get_context()) != sycl::usm::alloc::unknown;
  });
}

int sycl_graph_memset(sycl::queue *queue, void *target, int value, std::size_t nbytes) {
  return guarded([=] { queue->memset(target, value, nbytes); });
}

int sycl_graph_memcpy(sycl::queue *queue, void *target, const void *source, std::size_t nbytes) {
  return guarded([=] { queue->memcpy(target, source, nbytes); });
}

} // extern "C"
