// CUDA graphs: lists of what is to be done, each in the order in which it was captured or added.
#include <functional>
#include <vector>

#include "cudaops/runtime_api.h"
#include "machine.h"

using Work = std::function<void()>;
struct CUgraphNode_st { int unused; };
struct CUgraph_st {
  std::vector<Work> work;
  std::vector<cudaGraphNode_t> nodes;
};
struct CUgraphExec_st { std::vector<Work> work; };

namespace cudaops {

static CUgraph_st* capturing = nullptr;    // which streams write into now, whichever they are
static CUgraph_st* interrupted = nullptr;  // while a node of another graph is made

static void add_work(CUgraph_st* graph, Work work, cudaGraphNode_t* node = nullptr) {
  graph->work.push_back(std::move(work));
  graph->nodes.push_back(new CUgraphNode_st{0});
  if (node) *node = graph->nodes.back();
}

bool keeps(const Call& call) {
  if (!capturing) return false;
  void* closure = call.copy(call.closure);
  add_work(capturing, [call, closure] { call.submit_copy(closure, call); });
  return true;
}

bool keeps(std::function<void()> work) {
  if (!capturing) return false;
  add_work(capturing, std::move(work));
  return true;
}

cudaError_t begin_kernel_node(cudaGraph_t graph) {
  if (!graph) return cudaErrorInvalidValue;
  interrupted = capturing;
  capturing = graph;
  return cudaSuccess;
}
cudaError_t end_kernel_node(cudaGraphNode_t* node) {
  if (node && !capturing->nodes.empty()) *node = capturing->nodes.back();
  capturing = interrupted;
  return cudaSuccess;
}

}  // namespace cudaops

using namespace cudaops;

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (capturing) return cudaErrorInvalidValue;
  capturing = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  if (!capturing || !graph) return cudaErrorInvalidValue;
  *graph = capturing;
  capturing = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { *graph = new CUgraph_st; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return cudaErrorInvalidValue;
  for (cudaGraphNode_t node : graph->nodes) delete node;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (!graph || !count) return cudaErrorInvalidValue;
  if (nodes)
    for (size_t n = 0; n < *count && n < graph->nodes.size(); ++n) nodes[n] = graph->nodes[n];
  *count = graph->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  if (!made || !graph) return cudaErrorInvalidValue;
  *made = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  if (!graph) return cudaErrorInvalidValue;
  for (const Work& work : graph->work) work();
  return cudaPeekAtLastError();
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { delete graph; return cudaSuccess; }

static cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const void* parameters, Work work) {
  if (!graph || !parameters) return cudaErrorInvalidValue;
  add_work(graph, std::move(work), node);
  return cudaSuccess;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t) {
  return add_node(node, graph, graph, [] {});
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                 const cudaHostNodeParams* p) {
  return add_node(node, graph, p, [p = p ? *p : cudaHostNodeParams{}] { p.fn(p.userData); });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                   const cudaMemsetParams* given) {
  cudaMemsetParams p = given ? *given : cudaMemsetParams{};
  return add_node(node, graph, given, [p] {
    for (size_t row = 0; row < p.height; ++row)
      for (size_t n = 0; n < p.width; ++n) {
        char* to = (char*)p.dst + row * p.pitch + n * p.elementSize;
        cudaMemcpy(to, &p.value, p.elementSize, cudaMemcpyHostToDevice);
      }
  });
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                   const cudaMemcpy3DParms* p) {
  return add_node(node, graph, p, [p = p ? *p : cudaMemcpy3DParms{}] { cudaMemcpy3D(&p); });
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, size_t,
                                     void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return add_node(node, graph, graph, [=] { cudaMemcpy(to, from, bytes, kind); });
}
