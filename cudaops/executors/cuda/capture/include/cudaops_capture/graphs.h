// CUDA graphs of the program, as `src/graph_nodes.h` follows them.
#pragma once
#define CUDAOPS_CAPTURE_GRAPHS

namespace cudaops_capture {

// A kernel's node and what is launched there; `function` null: nothing that is known.
struct KernelNode {
  int site;
  const void* function;
  dim3 grid, block;
  size_t shared_bytes;
  void** arguments;
  // Of cudaGraphKernelNodeSetParams and the like, which are at no site of their own.
  explicit KernelNode(const cudaKernelNodeParams* p, int site = -1)
      : site(site), function(p->func), grid(p->gridDim), block(p->blockDim), shared_bytes(p->sharedMemBytes),
        arguments(p->kernelParams) {}
};

// `exec` null: of the graph that the node is in, else as that executable graph has it from now on.
void hold_node(cudaGraphExec_t exec, cudaGraphNode_t node, const KernelNode& kernel);
// `exec` was made, or made anew, of `graph`.
void graph_made(cudaGraphExec_t exec, cudaGraph_t graph);
// It was changed in a way that is not followed, or is gone.
void graph_changed(cudaGraphExec_t exec);
void graph_gone(cudaGraph_t graph);
// Its nodes one after the other where they are known, else cudaGraphLaunch.
cudaError_t launch_graph(cudaGraphExec_t exec, cudaStream_t stream);

// cudaGraphAddKernelNode.
inline cudaError_t add_kernel_node(int site, cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaKernelNodeParams* p) {
  cudaError_t error = cudaGraphAddKernelNode(node, graph, after, count, p);
  if (error == cudaSuccess) hold_node(nullptr, *node, KernelNode(p, site));
  return error;
}

// cudaGraphAddNode: of CUDA 12, and with data of edges of CUDA 13.
template <class Parameters>
cudaError_t held_node(int site, cudaError_t error, cudaGraphNode_t node, const Parameters* p) {
  if (error != cudaSuccess || p->type != cudaGraphNodeTypeKernel) return error;
  cudaKernelNodeParams same{};
  same.func = p->kernel.func, same.gridDim = p->kernel.gridDim, same.blockDim = p->kernel.blockDim;
  same.sharedMemBytes = p->kernel.sharedMemBytes, same.kernelParams = p->kernel.kernelParams;
  hold_node(nullptr, node, KernelNode(&same, site));
  return error;
}
template <class Parameters>
cudaError_t add_node(int site, cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                     Parameters* p) {
  cudaError_t error = cudaGraphAddNode(node, graph, after, count, p);
  return held_node(site, error, *node, p);
}
template <class Edges, class Parameters>
cudaError_t add_node(int site, cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, Edges edges,
                     size_t count, Parameters* p) {
  cudaError_t error = cudaGraphAddNode(node, graph, after, edges, count, p);
  return held_node(site, error, *node, p);
}

}  // namespace cudaops_capture

static inline cudaError_t cudaops_capture_instantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                      unsigned long long flags = 0) {
  cudaError_t error = cudaGraphInstantiateWithFlags(exec, graph, flags);
  if (error == cudaSuccess) ::cudaops_capture::graph_made(*exec, graph);
  return error;
}
// Before CUDA 12.
static inline cudaError_t cudaops_capture_instantiate(cudaGraphExec_t* exec, cudaGraph_t graph, cudaGraphNode_t*,
                                                      char*, size_t) {
  return cudaops_capture_instantiate(exec, graph);
}
static inline cudaError_t cudaops_capture_set_kernel(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                     const cudaKernelNodeParams* p) {
  cudaError_t error = cudaGraphExecKernelNodeSetParams(exec, node, p);
  if (error == cudaSuccess) ::cudaops_capture::hold_node(exec, node, ::cudaops_capture::KernelNode(p));
  return error;
}
static inline cudaError_t cudaops_capture_node_set_kernel(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
  cudaError_t error = cudaGraphKernelNodeSetParams(node, p);
  if (error == cudaSuccess) ::cudaops_capture::hold_node(nullptr, node, ::cudaops_capture::KernelNode(p));
  return error;
}
template <class... Rest>
static inline cudaError_t cudaops_capture_update(cudaGraphExec_t exec, cudaGraph_t graph, Rest... rest) {
  cudaError_t error = cudaGraphExecUpdate(exec, graph, rest...);
  if (error == cudaSuccess) ::cudaops_capture::graph_made(exec, graph);
  return error;
}
static inline cudaError_t cudaops_capture_exec_destroy(cudaGraphExec_t exec) {
  ::cudaops_capture::graph_changed(exec);
  return cudaGraphExecDestroy(exec);
}
static inline cudaError_t cudaops_capture_graph_destroy(cudaGraph_t graph) {
  ::cudaops_capture::graph_gone(graph);
  return cudaGraphDestroy(graph);
}
static inline cudaError_t cudaops_capture_graph_launch(cudaGraphExec_t exec, cudaStream_t stream) {
  return ::cudaops_capture::launch_graph(exec, stream);
}
#undef cudaGraphLaunch
#define cudaGraphInstantiate cudaops_capture_instantiate
#define cudaGraphInstantiateWithFlags cudaops_capture_instantiate
#define cudaGraphExecKernelNodeSetParams cudaops_capture_set_kernel
#define cudaGraphKernelNodeSetParams cudaops_capture_node_set_kernel
#define cudaGraphExecUpdate cudaops_capture_update
#define cudaGraphExecDestroy cudaops_capture_exec_destroy
#define cudaGraphDestroy cudaops_capture_graph_destroy
#define cudaGraphLaunch cudaops_capture_graph_launch
// What is set of an executable graph's other nodes is not followed: from then on it is launched whole.
#define CUDAOPS_CAPTURE_CHANGED(call, exec, ...) (::cudaops_capture::graph_changed(exec), call(exec, __VA_ARGS__))
#define cudaGraphExecMemcpyNodeSetParams(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphExecMemcpyNodeSetParams, __VA_ARGS__)
#define cudaGraphExecMemcpyNodeSetParams1D(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphExecMemcpyNodeSetParams1D, __VA_ARGS__)
#define cudaGraphExecMemcpyNodeSetParamsToSymbol(...) \
  CUDAOPS_CAPTURE_CHANGED(cudaGraphExecMemcpyNodeSetParamsToSymbol, __VA_ARGS__)
#define cudaGraphExecMemcpyNodeSetParamsFromSymbol(...) \
  CUDAOPS_CAPTURE_CHANGED(cudaGraphExecMemcpyNodeSetParamsFromSymbol, __VA_ARGS__)
#define cudaGraphExecMemsetNodeSetParams(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphExecMemsetNodeSetParams, __VA_ARGS__)
#define cudaGraphExecHostNodeSetParams(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphExecHostNodeSetParams, __VA_ARGS__)
#define cudaGraphExecChildGraphNodeSetParams(...) \
  CUDAOPS_CAPTURE_CHANGED(cudaGraphExecChildGraphNodeSetParams, __VA_ARGS__)
#define cudaGraphExecNodeSetParams(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphExecNodeSetParams, __VA_ARGS__)
#define cudaGraphNodeSetEnabled(...) CUDAOPS_CAPTURE_CHANGED(cudaGraphNodeSetEnabled, __VA_ARGS__)
