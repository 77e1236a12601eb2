// The program's CUDA graphs. Where one is launched its nodes are instead, one after the other in an
// order that its edges allow: a kernel that the program names is launched like any other and so can be
// recorded, and of every other node a graph with nothing else in it. A graph with nodes that cannot be
// taken out of it (memory that it allocates, conditions) is launched whole.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"
#undef cudaGraphInstantiate
#undef cudaGraphInstantiateWithFlags
#undef cudaGraphExecDestroy
#undef cudaGraphDestroy
#undef cudaGraphLaunch

namespace cudaops_capture {

// A launch that stands in a graph.
class Held {
 public:
  explicit Held(const Call& call) : call_(call) {
    for (int i = 0; i < call.count; ++i) {
      bytes_.emplace_back(new std::max_align_t[call.types[i].size / sizeof(std::max_align_t) + 1]);
      memcpy(bytes_[i].get(), call.values[i], call.types[i].size);
    }
    for (auto& one : bytes_) values_.push_back(one.get());
    call_.start = &start;
    call_.values = values_.data();
    call_.configuration = call_.closure = nullptr;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // Whether a launch can be done again later, from its arguments' bytes.
  static bool can_hold(const Call& call) { return call.function && !call.configuration && !call.limit; }

  cudaError_t launch(cudaStream_t stream) const {
    Call again = call_;
    again.geometry.stream = stream;
    submit(again);
    return cudaPeekAtLastError();
  }

  int site() const { return call_.site; }
  void at(int site) { call_.site = site; }

 private:
  static cudaError_t start(const Call& call) {
    const Geometry& g = call.geometry;
    if (call.is_together)
      return cudaLaunchCooperativeKernel(call.function, g.grid, g.block, call.values, g.shared_bytes, g.stream);
    return cudaLaunchKernel(call.function, g.grid, g.block, call.values, g.shared_bytes, g.stream);
  }

  Call call_;
  std::vector<std::unique_ptr<std::max_align_t[]>> bytes_;
  std::vector<void*> values_;
};

class Graphs {
 public:
  // Of the calling thread: where the next launch goes to instead of the device.
  static std::shared_ptr<Held>*& wanted() {
    static thread_local std::shared_ptr<Held>* held = nullptr;
    return held;
  }

  void hold(cudaGraphExec_t exec, cudaGraphNode_t node, const KernelNode& kernel) {
    std::shared_ptr<Held> held;
    if (auto* named = cudaops::NamedKernel::find(kernel.function); named && kernel.arguments) {
      Launch made = launch(kernel.site, named->name, kernel.grid, kernel.block, kernel.shared_bytes);
      wanted() = &held;
      named->start(&made, named->address, kernel.arguments);
      wanted() = nullptr;
    }
    std::lock_guard<std::mutex> guard(lock_);
    if (exec) {
      auto plan = plans_.find(exec);
      if (plan == plans_.end()) return;
      for (Step& step : plan->second)
        if (step.node == node && step.held && held) return replace(step.held, held);
      return drop(exec);
    }
    if (held) replace(held_[node], held);
    else held_.erase(node);
  }

  // The launch that a stream has just recorded.
  void captured(const Call& call) {
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* last = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData* edges = nullptr;
    cudaError_t error = cudaStreamGetCaptureInfo(call.geometry.stream, &status, &id, &graph, &last, &edges, &count);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(call.geometry.stream, &status, &id, &graph, &last, &count);
#endif
    if (error != cudaSuccess || count != 1) return;
    std::lock_guard<std::mutex> guard(lock_);
    if (Held::can_hold(call)) held_[last[0]] = std::make_shared<Held>(call);
    else held_.erase(last[0]);
  }

  void made(cudaGraphExec_t exec, cudaGraph_t graph) {
    OwnCalls own;
    std::lock_guard<std::mutex> guard(lock_);
    drop(exec);
    std::vector<cudaGraphNode_t> nodes = in_order(graph);
    std::vector<Step> steps;
    size_t held = 0;
    for (cudaGraphNode_t node : nodes) {
      auto known = held_.find(node);
      steps.push_back(Step{node, known == held_.end() ? nullptr : known->second, nullptr});
      held += steps.back().held != nullptr;
    }
    if (!held || (nodes.size() - held) * nodes.size() > most_copied) return;
    for (Step& step : steps)
      if (!step.held && !(step.other = alone(graph, nodes, step.node))) return give_back(steps);
    plans_[exec] = std::move(steps);
  }

  void changed(cudaGraphExec_t exec) {
    OwnCalls own;
    std::lock_guard<std::mutex> guard(lock_);
    drop(exec);
  }

  void gone(cudaGraph_t graph) {
    OwnCalls own;
    size_t count = 0;
    if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess) return;
    std::vector<cudaGraphNode_t> nodes(count);
    if (count && cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return;
    std::lock_guard<std::mutex> guard(lock_);
    for (cudaGraphNode_t node : nodes) held_.erase(node);
  }

  cudaError_t launch_in(cudaGraphExec_t exec, cudaStream_t stream) {
    std::vector<Step> steps;
    {
      OwnCalls own;
      std::lock_guard<std::mutex> guard(lock_);
      auto plan = plans_.find(exec);
      if (plan != plans_.end() && !is_capturing(stream)) steps = plan->second;
    }
    if (steps.empty()) return cudaGraphLaunch(exec, stream);
    for (const Step& step : steps) {
      cudaError_t error = step.held ? step.held->launch(stream) : cudaGraphLaunch(step.other, stream);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }

 private:
  struct Step {
    cudaGraphNode_t node;
    std::shared_ptr<Held> held;
    cudaGraphExec_t other;
  };
  static constexpr size_t most_copied = 1u << 18;  // nodes, of all graphs of one node each of one graph

  // What is set anew stands where it stood.
  static void replace(std::shared_ptr<Held>& old, std::shared_ptr<Held> held) {
    if (old && held->site() < 0) held->at(old->site());
    old = std::move(held);
  }

  void drop(cudaGraphExec_t exec) {
    auto plan = plans_.find(exec);
    if (plan == plans_.end()) return;
    give_back(plan->second);
    plans_.erase(plan);
  }

  static void give_back(const std::vector<Step>& steps) {
    for (const Step& step : steps)
      if (step.other) cudaGraphExecDestroy(step.other);
  }

  // All nodes, each behind those that it waits for; none where that cannot be told.
  static std::vector<cudaGraphNode_t> in_order(cudaGraph_t graph) {
    size_t count = 0, edges = 0;
    if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess || get_edges(graph, nullptr, nullptr, &edges)) return {};
    std::vector<cudaGraphNode_t> nodes(count), from(edges), to(edges), order;
    if (count && cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return {};
    if (edges && get_edges(graph, from.data(), to.data(), &edges)) return {};
    std::map<cudaGraphNode_t, size_t> waits;
    for (size_t i = 0; i < edges; ++i) ++waits[to[i]];
    std::multimap<cudaGraphNode_t, cudaGraphNode_t> next;
    for (size_t i = 0; i < edges; ++i) next.emplace(from[i], to[i]);
    for (cudaGraphNode_t node : nodes)
      if (!waits.count(node)) order.push_back(node);
    for (size_t at = 0; at < order.size(); ++at) {
      auto range = next.equal_range(order[at]);
      for (auto one = range.first; one != range.second; ++one)
        if (--waits[one->second] == 0) order.push_back(one->second);
    }
    return order.size() == count ? order : std::vector<cudaGraphNode_t>{};
  }

  static bool get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, size_t* count) {
#if CUDART_VERSION >= 13000
    return cudaGraphGetEdges(graph, from, to, nullptr, count) != cudaSuccess;
#else
    return cudaGraphGetEdges(graph, from, to, count) != cudaSuccess;
#endif
  }

  // A graph of this one node; null where there can be none.
  static cudaGraphExec_t alone(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& nodes, cudaGraphNode_t node) {
    cudaGraph_t copy = nullptr;
    if (cudaGraphClone(&copy, graph) != cudaSuccess) return nullptr;
    bool told = true;
    for (cudaGraphNode_t other : nodes) {
      cudaGraphNode_t there = nullptr;
      if (other == node) continue;
      told = told && cudaGraphNodeFindInClone(&there, other, copy) == cudaSuccess &&
             cudaGraphDestroyNode(there) == cudaSuccess;
    }
    cudaGraphExec_t made = nullptr;
    if (told && cudaGraphInstantiateWithFlags(&made, copy, 0) != cudaSuccess) made = nullptr;
    cudaGraphDestroy(copy);
    return made;
  }

  std::mutex lock_;
  std::map<cudaGraphNode_t, std::shared_ptr<Held>> held_;
  std::map<cudaGraphExec_t, std::vector<Step>> plans_;
};

static Graphs& graphs() {
  static Graphs* all = new Graphs;
  return *all;
}

void hold_node(cudaGraphExec_t exec, cudaGraphNode_t node, const KernelNode& kernel) { graphs().hold(exec, node, kernel); }
void graph_made(cudaGraphExec_t exec, cudaGraph_t graph) { graphs().made(exec, graph); }
void graph_changed(cudaGraphExec_t exec) { graphs().changed(exec); }
void graph_gone(cudaGraph_t graph) { graphs().gone(graph); }
cudaError_t launch_graph(cudaGraphExec_t exec, cudaStream_t stream) { return graphs().launch_in(exec, stream); }

}  // namespace cudaops_capture
