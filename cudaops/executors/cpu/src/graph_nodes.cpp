// Nodes of CUDA graphs: made, asked and changed one by one.
#include <algorithm>
#include <cstdio>

#include "graph_node.h"

using namespace cudaops;

#define NODE cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after, size_t count

static cudaError_t added(NODE, cudaGraphNodeType type, const void* needed, CUgraphNode_st** made) {
  if (!graph || !needed || (count && !after)) return cudaErrorInvalidValue;
  *made = add_node_of(graph, type, after, count);
  if (node) *node = *made;
  return cudaSuccess;
}
#define ADD(type, needed, what)                                             \
  CUgraphNode_st* made = nullptr;                                           \
  cudaError_t error = added(node, graph, after, count, type, needed, &made); \
  if (error == cudaSuccess) made->what;                                     \
  return error

cudaError_t cudaGraphAddEmptyNode(NODE) { ADD(cudaGraphNodeTypeEmpty, graph, is_enabled = true); }
cudaError_t cudaGraphAddHostNode(NODE, const cudaHostNodeParams* p) { ADD(cudaGraphNodeTypeHost, p, host = *p); }
cudaError_t cudaGraphAddMemsetNode(NODE, const cudaMemsetParams* p) { ADD(cudaGraphNodeTypeMemset, p, fill = *p); }
cudaError_t cudaGraphAddMemcpyNode(NODE, const cudaMemcpy3DParms* p) { ADD(cudaGraphNodeTypeMemcpy, p, copy = *p); }
cudaError_t cudaGraphAddMemcpyNode1D(NODE, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  ADD(cudaGraphNodeTypeMemcpy, graph, copy = copy_of(to, from, bytes, kind));
}
cudaError_t cudaGraphAddChildGraphNode(NODE, cudaGraph_t child) {
  ADD(cudaGraphNodeTypeGraph, child, child.reset(copied(*child)));
}
cudaError_t cudaGraphAddEventRecordNode(NODE, cudaEvent_t event) {
  ADD(cudaGraphNodeTypeEventRecord, event, event = event);
}
cudaError_t cudaGraphAddEventWaitNode(NODE, cudaEvent_t event) { ADD(cudaGraphNodeTypeWaitEvent, event, event = event); }
cudaError_t cudaGraphAddMemAllocNode(NODE, cudaMemAllocNodeParams* p) {
  if (!graph || !p) return cudaErrorInvalidValue;
  cudaError_t error = cudaMalloc(&p->dptr, p->bytesize);
  if (error != cudaSuccess) return error;
  error = begin_kernel_node(graph, after, count);
  keeps_allocation(p->dptr, p->bytesize);
  end_kernel_node(node);
  graph->nodes.back()->allocation = *p;
  return error;
}
cudaError_t cudaGraphAddMemFreeNode(NODE, void* pointer) { ADD(cudaGraphNodeTypeMemFree, pointer, released = pointer); }
#undef ADD

namespace cudaops {
cudaError_t add_other_node(NODE, cudaGraphNodeParams* p) {
  switch (p->type) {
    case cudaGraphNodeTypeMemcpy: return cudaGraphAddMemcpyNode(node, graph, after, count, &p->memcpy.copyParams);
    case cudaGraphNodeTypeMemset: return cudaGraphAddMemsetNode(node, graph, after, count, &p->memset);
    case cudaGraphNodeTypeHost: return cudaGraphAddHostNode(node, graph, after, count, &p->host);
    case cudaGraphNodeTypeGraph: return cudaGraphAddChildGraphNode(node, graph, after, count, p->graph.graph);
    case cudaGraphNodeTypeEmpty: return cudaGraphAddEmptyNode(node, graph, after, count);
    case cudaGraphNodeTypeWaitEvent: return cudaGraphAddEventWaitNode(node, graph, after, count, p->eventWait.event);
    case cudaGraphNodeTypeEventRecord:
      return cudaGraphAddEventRecordNode(node, graph, after, count, p->eventRecord.event);
    case cudaGraphNodeTypeMemAlloc: return cudaGraphAddMemAllocNode(node, graph, after, count, &p->alloc);
    case cudaGraphNodeTypeMemFree: return cudaGraphAddMemFreeNode(node, graph, after, count, p->free.dptr);
    default: return cudaErrorNotSupported;
  }
}

// As many as there is room for; how many there are where there is none.
static cudaError_t hand_out(const std::vector<CUgraphNode_st*>& found, cudaGraphNode_t* nodes, size_t* count) {
  if (!count) return cudaErrorInvalidValue;
  if (nodes) {
    for (size_t n = 0; n < *count; ++n) nodes[n] = n < found.size() ? found[n] : nullptr;
    *count = std::min(*count, found.size());
  } else {
    *count = found.size();
  }
  return cudaSuccess;
}
static void clear(cudaGraphEdgeData* edges, const size_t* count) {
  if (edges) std::memset(edges, 0, *count * sizeof *edges);
}
static std::vector<CUgraphNode_st*> dependents(const CUgraphNode_st* node) {
  std::vector<CUgraphNode_st*> found;
  for (CUgraphNode_st* one : node->graph->nodes)
    if (std::count(one->after.begin(), one->after.end(), node)) found.push_back(one);
  return found;
}
}  // namespace cudaops

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return graph ? hand_out(graph->nodes, nodes, count) : cudaErrorInvalidValue;
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (!graph) return cudaErrorInvalidValue;
  std::vector<CUgraphNode_st*> roots;
  for (CUgraphNode_st* node : graph->nodes)
    if (node->after.empty()) roots.push_back(node);
  return hand_out(roots, nodes, count);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                              size_t* count) {
  if (!graph || !count || !from != !to) return cudaErrorInvalidValue;
  std::vector<CUgraphNode_st*> begins, ends;
  for (CUgraphNode_st* node : graph->nodes)
    for (CUgraphNode_st* before : node->after) begins.push_back(before), ends.push_back(node);
  size_t room = *count;
  if (from) hand_out(begins, from, &room);
  room = *count;
  cudaError_t error = hand_out(ends, to, &room);
  *count = room;
  clear(from ? edges : nullptr, count);
  return error;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
  if (!graph || (count && (!from || !to))) return cudaErrorInvalidValue;
  for (size_t n = 0; n < count; ++n) {
    if (std::count(to[n]->after.begin(), to[n]->after.end(), from[n])) return cudaErrorInvalidValue;
    to[n]->after.push_back(from[n]);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData*, size_t count) {
  if (!graph || (count && (!from || !to))) return cudaErrorInvalidValue;
  for (size_t n = 0; n < count; ++n) {
    auto& after = to[n]->after;
    auto at = std::find(after.begin(), after.end(), from[n]);
    if (at == after.end()) return cudaErrorInvalidValue;
    after.erase(at);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  if (!node) return cudaErrorInvalidValue;
  for (CUgraphNode_st* one : dependents(node)) one->after.erase(std::find(one->after.begin(), one->after.end(), node));
  auto& nodes = node->graph->nodes;
  nodes.erase(std::find(nodes.begin(), nodes.end(), node));
  delete node;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  if (!node || !type) return cudaErrorInvalidValue;
  *type = node->type;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                         size_t* count) {
  cudaError_t error = node ? hand_out(node->after, nodes, count) : cudaErrorInvalidValue;
  if (error == cudaSuccess && nodes) clear(edges, count);
  return error;
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                           size_t* count) {
  cudaError_t error = node ? hand_out(dependents(node), nodes, count) : cudaErrorInvalidValue;
  if (error == cudaSuccess && nodes) clear(edges, count);
  return error;
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  static const char* names[] = {"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD",
                                "", "", "MEM_ALLOC", "MEM_FREE"};
  if (!graph || !path) return cudaErrorInvalidValue;
  FILE* file = fopen(path, "w");
  if (!file) return cudaErrorOperatingSystem;
  fprintf(file, "digraph dot {\n");
  auto place = [&](CUgraphNode_st* node) {
    return (int)(std::find(graph->nodes.begin(), graph->nodes.end(), node) - graph->nodes.begin());
  };
  for (CUgraphNode_st* node : graph->nodes)
    fprintf(file, "\"node_%d\" [label=\"%d %s\"];\n", place(node), place(node),
            node->type == cudaGraphNodeTypeKernel ? node->call.kernel : names[node->type]);
  for (CUgraphNode_st* node : graph->nodes)
    for (CUgraphNode_st* before : node->after)
      fprintf(file, "\"node_%d\" -> \"node_%d\";\n", place(before), place(node));
  fprintf(file, "}\n");
  fclose(file);
  return cudaSuccess;
}

// What nodes do.
namespace cudaops {
static CUgraphNode_st* of_exec(cudaGraphExec_t exec, cudaGraphNode_t node) {
  return exec && node ? counterpart(*exec->graph, node) : nullptr;
}
// Other arguments for the same function, or another kernel, by its address.
static cudaError_t set(CUgraphNode_st& node, const cudaKernelNodeParams& now) {
  CUgraphNode_st made = node;
  made.call.grid = now.gridDim, made.call.block = now.blockDim, made.call.shared_bytes = now.sharedMemBytes;
  if (now.func == node.call.function && now.kernelParams) {
    made.closure = node.call.copy(node.closure);
    node.call.assign(made.closure, now.kernelParams);
    for (size_t i = 0; i < made.arguments.size(); ++i)
      std::memcpy(made.arguments[i].data(), now.kernelParams[i], made.arguments[i].size());
  } else {
    CUgraph_st other;
    CUgraphNode_st* one = nullptr;
    cudaError_t error = add_kernel_node(node.call.site, &one, &other, nullptr, 0, &now);
    if (error != cudaSuccess || !one) return error == cudaSuccess ? cudaErrorInvalidDeviceFunction : error;
    made.call = one->call, made.closure = one->closure, made.arguments = one->arguments;
  }
  take_work(node, made);
  return cudaSuccess;
}
static cudaError_t set(CUgraphNode_st& node, const cudaMemcpy3DParms& now) { node.copy = now; return cudaSuccess; }
static cudaError_t set(CUgraphNode_st& node, const cudaMemsetParams& now) { node.fill = now; return cudaSuccess; }
static cudaError_t set(CUgraphNode_st& node, const cudaHostNodeParams& now) { node.host = now; return cudaSuccess; }
static void get(CUgraphNode_st& node, cudaKernelNodeParams& given) {
  given = cudaKernelNodeParams{(void*)node.call.function, node.call.grid, node.call.block,
                               (unsigned)node.call.shared_bytes, node.addresses.data(), nullptr};
}
static void get(CUgraphNode_st& node, cudaMemcpy3DParms& given) { given = node.copy; }
static void get(CUgraphNode_st& node, cudaMemsetParams& given) { given = node.fill; }
static void get(CUgraphNode_st& node, cudaHostNodeParams& given) { given = node.host; }

template <class T>
cudaError_t set_of(cudaGraphNode_t node, cudaGraphNodeType type, const T* now) {
  return node && now && node->type == type ? set(*node, *now) : cudaErrorInvalidValue;
}
template <class T>
cudaError_t get_of(cudaGraphNode_t node, cudaGraphNodeType type, T* given) {
  if (!node || !given || node->type != type) return cudaErrorInvalidValue;
  get(*node, *given);
  return cudaSuccess;
}
static cudaError_t set_event(cudaGraphNode_t node, cudaGraphNodeType type, cudaEvent_t event) {
  if (!node || !event || node->type != type) return cudaErrorInvalidValue;
  node->event = event;
  return cudaSuccess;
}
static cudaError_t get_event(cudaGraphNode_t node, cudaGraphNodeType type, cudaEvent_t* event) {
  if (!node || !event || node->type != type) return cudaErrorInvalidValue;
  *event = node->event;
  return cudaSuccess;
}
static cudaError_t set_any(cudaGraphNode_t node, cudaGraphNodeParams* now) {
  if (!node || !now || node->type != now->type) return cudaErrorInvalidValue;
  switch (now->type) {
    case cudaGraphNodeTypeKernel: {
      const auto& k = now->kernel;
      cudaKernelNodeParams one{k.func, k.gridDim, k.blockDim, k.sharedMemBytes, k.kernelParams, k.extra};
      return set(*node, one);
    }
    case cudaGraphNodeTypeMemcpy: return set(*node, now->memcpy.copyParams);
    case cudaGraphNodeTypeMemset: return set(*node, (const cudaMemsetParams&)now->memset);
    case cudaGraphNodeTypeHost: return set(*node, (const cudaHostNodeParams&)now->host);
    case cudaGraphNodeTypeWaitEvent: return set_event(node, now->type, now->eventWait.event);
    case cudaGraphNodeTypeEventRecord: return set_event(node, now->type, now->eventRecord.event);
    default: return cudaErrorNotSupported;
  }
}
}  // namespace cudaops

#define PARAMETERS(Kind, T)                                                                              \
  cudaError_t cudaGraph##Kind##NodeGetParams(cudaGraphNode_t node, T* given) {                           \
    return get_of(node, cudaGraphNodeType##Kind, given);                                                 \
  }                                                                                                      \
  cudaError_t cudaGraph##Kind##NodeSetParams(cudaGraphNode_t node, const T* now) {                       \
    return set_of(node, cudaGraphNodeType##Kind, now);                                                   \
  }                                                                                                      \
  cudaError_t cudaGraphExec##Kind##NodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const T* now) { \
    return set_of(of_exec(exec, node), cudaGraphNodeType##Kind, now);                                        \
  }
PARAMETERS(Kernel, cudaKernelNodeParams)
PARAMETERS(Memcpy, cudaMemcpy3DParms)
PARAMETERS(Memset, cudaMemsetParams)
PARAMETERS(Host, cudaHostNodeParams)
#undef PARAMETERS
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from, size_t bytes,
                                           cudaMemcpyKind kind) {
  cudaMemcpy3DParms now = copy_of(to, from, bytes, kind);
  return cudaGraphMemcpyNodeSetParams(node, &now);
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms now = copy_of(to, from, bytes, kind);
  return cudaGraphExecMemcpyNodeSetParams(exec, node, &now);
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* child) {
  if (!node || !child || node->type != cudaGraphNodeTypeGraph) return cudaErrorInvalidValue;
  *child = node->child.get();
  return cudaSuccess;
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  CUgraphNode_st* one = of_exec(exec, node);
  if (!one || !child || one->type != cudaGraphNodeTypeGraph || one->child->nodes.size() != child->nodes.size())
    return cudaErrorInvalidValue;
  for (size_t n = 0; n < child->nodes.size(); ++n) take_work(*one->child->nodes[n], *child->nodes[n]);
  return cudaSuccess;
}
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return get_event(node, cudaGraphNodeTypeEventRecord, event);
}
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(node, cudaGraphNodeTypeEventRecord, event);
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return get_event(node, cudaGraphNodeTypeWaitEvent, event);
}
cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(node, cudaGraphNodeTypeWaitEvent, event);
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(of_exec(exec, node), cudaGraphNodeTypeEventRecord, event);
}
cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(of_exec(exec, node), cudaGraphNodeTypeWaitEvent, event);
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* given) {
  if (!node || !given || node->type != cudaGraphNodeTypeMemAlloc) return cudaErrorInvalidValue;
  *given = node->allocation;
  return cudaSuccess;
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  if (!node || !pointer || node->type != cudaGraphNodeTypeMemFree) return cudaErrorInvalidValue;
  *(void**)pointer = node->released;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            const cudaLaunchAttributeValue* value) {
  if (!node || !value || node->type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
  if (id == cudaLaunchAttributeClusterDimension || id == cudaLaunchAttributeCooperative) return cudaErrorNotSupported;
  node->attributes[id] = *value;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID id,
                                            cudaLaunchAttributeValue* value) {
  if (!node || !value || node->type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
  *value = node->attributes[id];
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
  if (!to || !from) return cudaErrorInvalidValue;
  to->attributes = from->attributes;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* now) { return set_any(node, now); }
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* now) {
  return set_any(of_exec(exec, node), now);
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned is_enabled) {
  CUgraphNode_st* one = of_exec(exec, node);
  bool may = one && (one->type == cudaGraphNodeTypeKernel || one->type == cudaGraphNodeTypeMemcpy ||
                     one->type == cudaGraphNodeTypeMemset);
  if (!may) return cudaErrorInvalidValue;
  one->is_enabled = is_enabled;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* is_enabled) {
  CUgraphNode_st* one = of_exec(exec, node);
  if (!one || !is_enabled) return cudaErrorInvalidValue;
  *is_enabled = one->is_enabled;
  return cudaSuccess;
}
#undef NODE
