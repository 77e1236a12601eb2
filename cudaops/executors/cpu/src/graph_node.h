// A graph and its nodes, as the runtime keeps them.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "machine.h"

struct CUgraphNode_st {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  CUgraph_st* graph = nullptr;
  CUgraphNode_st* original = nullptr;  // in the graph that this one is a copy of
  std::vector<CUgraphNode_st*> after;
  bool is_enabled = true;
  cudaops::Call call{};
  void* closure = nullptr;             // the kernel with its arguments, which follow as they are told
  std::vector<std::vector<char>> arguments;
  std::vector<void*> addresses;
  std::map<int, cudaLaunchAttributeValue> attributes;
  cudaMemcpy3DParms copy{};
  cudaMemsetParams fill{};
  cudaHostNodeParams host{};
  std::shared_ptr<CUgraph_st> child;
  cudaEvent_t event = nullptr;
  cudaMemAllocNodeParams allocation{};
  void* released = nullptr;
};
struct CUgraph_st {
  std::vector<CUgraphNode_st*> nodes;
  CUgraph_st() = default;
  CUgraph_st(const CUgraph_st&) = delete;
  ~CUgraph_st() {
    for (CUgraphNode_st* node : nodes) delete node;
  }
};
struct CUgraphExec_st {
  std::unique_ptr<CUgraph_st> graph;
  unsigned long long flags = 0;
};

namespace cudaops {
CUgraphNode_st* add_node_of(CUgraph_st* graph, cudaGraphNodeType type, const cudaGraphNode_t* after, size_t count);
CUgraph_st* copied(const CUgraph_st& graph);
// What an executable graph, or a child of it, has for a node of its graph; null: nothing.
CUgraphNode_st* counterpart(const CUgraph_st& of, const CUgraphNode_st* node);
// All that a node does, from another one.
void take_work(CUgraphNode_st& to, const CUgraphNode_st& from);
std::vector<CUgraphNode_st*> in_order(const CUgraph_st& graph);
void run_graph(const CUgraph_st& graph);
}  // namespace cudaops
