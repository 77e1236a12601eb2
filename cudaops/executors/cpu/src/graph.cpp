// CUDA graphs: what streams capture, graphs as wholes, and their launches.
#include <algorithm>
#include <cstdio>
#include <set>

#include "graph_node.h"

namespace cudaops {

// What streams write into now, whichever they are, and behind what. No graph: they do not.
struct Capture {
  CUgraph_st* graph = nullptr;
  std::vector<CUgraphNode_st*> after;
  unsigned long long id = 0;
};
static Lasting<Capture> lasting_capture CUDAOPS_LASTING;
static Capture& capture = lasting_capture.value;
static Lasting<Capture> lasting_interrupted CUDAOPS_LASTING;
static Capture& interrupted = lasting_interrupted.value;  // while a node of another graph is made
static unsigned long long captures = 0;
static Lasting<std::set<const void*>> lasting_memory_of_graphs CUDAOPS_LASTING;
static std::set<const void*>& memory_of_graphs = lasting_memory_of_graphs.value;

CUgraphNode_st* add_node_of(CUgraph_st* graph, cudaGraphNodeType type, const cudaGraphNode_t* after, size_t count) {
  auto* node = new CUgraphNode_st;
  node->type = type;
  node->graph = graph;
  if (after) node->after.assign(after, after + count);
  graph->nodes.push_back(node);
  return node;
}
static CUgraphNode_st* captured(cudaGraphNodeType type) {
  CUgraphNode_st* node = add_node_of(capture.graph, type, capture.after.data(), capture.after.size());
  capture.after = {node};
  return node;
}

static void tell_arguments(CUgraphNode_st& node) {
  node.addresses.clear();
  for (auto& bytes : node.arguments) node.addresses.push_back(bytes.data());
}
bool keeps(const Call& call) {
  if (!capture.graph) return false;
  CUgraphNode_st* node = captured(cudaGraphNodeTypeKernel);
  node->call = call;
  node->closure = call.copy(call.closure);
  for (int i = 0; i < call.count; ++i) {
    auto* from = (const char*)call.values[i];
    node->arguments.emplace_back(from, from + call.types[i].size);
  }
  tell_arguments(*node);
  return true;
}
bool keeps(const cudaMemcpy3DParms& copy) {
  if (capture.graph) captured(cudaGraphNodeTypeMemcpy)->copy = copy;
  return capture.graph;
}
bool keeps(const cudaMemsetParams& fill) {
  if (capture.graph) captured(cudaGraphNodeTypeMemset)->fill = fill;
  return capture.graph;
}
bool keeps(const cudaHostNodeParams& call) {
  if (capture.graph) captured(cudaGraphNodeTypeHost)->host = call;
  return capture.graph;
}
bool keeps_event(cudaGraphNodeType type, cudaEvent_t event) {
  if (capture.graph) captured(type)->event = event;
  return capture.graph;
}
bool keeps_allocation(void* pointer, size_t bytes) {
  if (!capture.graph) return false;
  cudaMemAllocNodeParams& given = captured(cudaGraphNodeTypeMemAlloc)->allocation;
  given.bytesize = bytes;
  given.dptr = pointer;
  memory_of_graphs.insert(pointer);
  return true;
}
bool keeps_release(void* pointer) {
  if (capture.graph) captured(cudaGraphNodeTypeMemFree)->released = pointer;
  return capture.graph;
}
bool is_of_graph(const void* pointer) { return memory_of_graphs.count(pointer); }

cudaError_t begin_kernel_node(cudaGraph_t graph, const cudaGraphNode_t* after, size_t count) {
  if (!graph) return cudaErrorInvalidValue;
  interrupted = capture;
  capture.graph = graph;
  capture.after.clear();
  if (after) capture.after.assign(after, after + count);
  return cudaSuccess;
}
cudaError_t end_kernel_node(cudaGraphNode_t* node) {
  if (node && !capture.graph->nodes.empty()) *node = capture.graph->nodes.back();
  capture = interrupted;
  return cudaSuccess;
}

void take_work(CUgraphNode_st& to, const CUgraphNode_st& from) {
  CUgraphNode_st made = from;
  made.graph = to.graph, made.original = to.original, made.after = to.after, made.is_enabled = to.is_enabled;
  if (from.closure) made.closure = from.call.copy(from.closure);
  if (from.child) made.child.reset(copied(*from.child));
  to = std::move(made);
  tell_arguments(to);
}
CUgraph_st* copied(const CUgraph_st& graph) {
  auto* made = new CUgraph_st;
  std::map<const CUgraphNode_st*, CUgraphNode_st*> own;
  for (const CUgraphNode_st* node : graph.nodes) {
    CUgraphNode_st* one = own[node] = add_node_of(made, node->type, nullptr, 0);
    one->original = const_cast<CUgraphNode_st*>(node);
    one->is_enabled = node->is_enabled;
    take_work(*one, *node);
  }
  for (const CUgraphNode_st* node : graph.nodes)
    for (const CUgraphNode_st* before : node->after) own[node]->after.push_back(own[before]);
  return made;
}
CUgraphNode_st* counterpart(const CUgraph_st& of, const CUgraphNode_st* node) {
  for (CUgraphNode_st* one : of.nodes) {
    if (one->original == node) return one;
    if (CUgraphNode_st* deeper = one->child ? counterpart(*one->child, node) : nullptr) return deeper;
  }
  return nullptr;
}
// Each as soon as all it waits for are done, of those the one that was added first; a circle is left out.
std::vector<CUgraphNode_st*> in_order(const CUgraph_st& graph) {
  std::vector<CUgraphNode_st*> waiting = graph.nodes, done;
  std::set<CUgraphNode_st*> behind;
  auto is_ready = [&](CUgraphNode_st* node) {
    return std::all_of(node->after.begin(), node->after.end(), [&](CUgraphNode_st* one) { return behind.count(one); });
  };
  for (;;) {
    auto at = std::find_if(waiting.begin(), waiting.end(), is_ready);
    if (at == waiting.end()) return done;
    behind.insert(*at);
    done.push_back(*at);
    waiting.erase(at);
  }
}

static void fill_memory(const cudaMemsetParams& p) {
  if (p.elementSize <= 1) {
    cudaMemset2D(p.dst, p.pitch, (int)p.value, p.width, p.height);
    return;
  }
  for (size_t row = 0; row < p.height; ++row)
    for (size_t n = 0; n < p.width; ++n)
      cudaMemcpy((char*)p.dst + row * p.pitch + n * p.elementSize, &p.value, p.elementSize, cudaMemcpyDefault);
}
static void run_node(const CUgraphNode_st& node) {
  switch (node.type) {
    case cudaGraphNodeTypeKernel: node.call.submit_copy(node.closure, node.call); break;
    case cudaGraphNodeTypeMemcpy: cudaMemcpy3D(&node.copy); break;
    case cudaGraphNodeTypeMemset: fill_memory(node.fill); break;
    case cudaGraphNodeTypeHost: node.host.fn(node.host.userData); break;
    case cudaGraphNodeTypeGraph: run_graph(*node.child); break;
    case cudaGraphNodeTypeEventRecord: cudaEventRecord(node.event); break;
    default: break;  // nothing to wait for; memory stays where it is
  }
}
void run_graph(const CUgraph_st& graph) {
  for (const CUgraphNode_st* node : in_order(graph))
    if (node->is_enabled) run_node(*node);
}

}  // namespace cudaops

using namespace cudaops;

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (capture.graph) return cudaErrorInvalidValue;
  capture = Capture{new CUgraph_st, {}, ++captures};
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t graph, const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData*, size_t count, cudaStreamCaptureMode) {
  if (capture.graph || !graph) return cudaErrorInvalidValue;
  capture = Capture{graph, {}, ++captures};
  if (after) capture.after.assign(after, after + count);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  if (!capture.graph || !graph) return cudaErrorInvalidValue;
  *graph = capture.graph;
  capture = Capture{};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capture.graph ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  if (!status) return cudaErrorInvalidValue;
  if (id) *id = capture.id;
  if (graph) *graph = capture.graph;
  if (after) *after = capture.after.data();
  if (edges) *edges = nullptr;
  if (count) *count = capture.after.size();
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t* after, const cudaGraphEdgeData*,
                                                size_t count, unsigned flags) {
  if (!capture.graph) return cudaErrorIllegalState;
  if (flags == cudaStreamSetCaptureDependencies) capture.after.clear();
  if (after) capture.after.insert(capture.after.end(), after, after + count);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
  if (!mode) return cudaErrorInvalidValue;
  std::swap(now, *mode);
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { *graph = new CUgraph_st; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return cudaErrorInvalidValue;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  if (!clone || !graph) return cudaErrorInvalidValue;
  *clone = copied(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original, cudaGraph_t clone) {
  if (!node || !original || !clone) return cudaErrorInvalidValue;
  *node = counterpart(*clone, original);
  return *node ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  if (!made || !graph) return cudaErrorInvalidValue;
  if (in_order(*graph).size() != graph->nodes.size()) return cudaErrorInvalidValue;  // a circle
  *made = new CUgraphExec_st{std::unique_ptr<CUgraph_st>(copied(*graph)), flags};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* made, cudaGraph_t graph, cudaGraphInstantiateParams* how) {
  if (!how) return cudaErrorInvalidValue;
  cudaError_t error = cudaGraphInstantiate(made, graph, how->flags);
  how->errNode_out = nullptr;
  how->result_out = error == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateInvalidStructure;
  return error;
}
// The first node that another graph does not have in the same place; whether there is one.
static bool differs(const CUgraph_st& exec, const CUgraph_st& graph, cudaGraphExecUpdateResultInfo& info) {
  auto found = [&](cudaGraphExecUpdateResult what, CUgraphNode_st* node) {
    info = {what, node, nullptr};
    return true;
  };
  if (exec.nodes.size() != graph.nodes.size())
    return found(cudaGraphExecUpdateErrorTopologyChanged, graph.nodes.empty() ? nullptr : graph.nodes.back());
  auto place = [](const CUgraph_st& in, const CUgraphNode_st* node) {
    return std::find(in.nodes.begin(), in.nodes.end(), node) - in.nodes.begin();
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const CUgraphNode_st &was = *exec.nodes[n], &now = *graph.nodes[n];
    if (was.type != now.type) return found(cudaGraphExecUpdateErrorNodeTypeChanged, graph.nodes[n]);
    std::set<long> before, then;
    for (auto* one : was.after) before.insert(place(exec, one));
    for (auto* one : now.after) then.insert(place(graph, one));
    if (before != then) return found(cudaGraphExecUpdateErrorTopologyChanged, graph.nodes[n]);
    if (was.child && differs(*was.child, *now.child, info)) return true;
  }
  return false;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  if (!exec || !graph || !info) return cudaErrorInvalidValue;
  *info = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
  if (differs(*exec->graph, *graph, *info)) return cudaErrorGraphExecUpdateFailure;
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    CUgraphNode_st& own = *exec->graph->nodes[n];
    auto child = own.child;  // whose nodes are known by those of the graph that was instantiated
    take_work(own, *graph->nodes[n]);
    if (!child) continue;
    for (size_t m = 0; m < child->nodes.size(); ++m) take_work(*child->nodes[m], *own.child->nodes[m]);
    own.child = child;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  if (!exec || !flags) return cudaErrorInvalidValue;
  *flags = exec->flags;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  if (!exec) return cudaErrorInvalidValue;
  run_graph(*exec->graph);
  return cudaPeekAtLastError();
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { delete exec; return cudaSuccess; }
cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType, void* value) {
  if (device != 0 || !value) return cudaErrorInvalidValue;
  *(unsigned long long*)value = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType, void*) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceGraphMemTrim(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
