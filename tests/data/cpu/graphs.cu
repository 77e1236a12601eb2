// Graphs: what is kept of a capture and of nodes, what may be changed of them, and what runs.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#define CHECK(call)                                                            \
  do {                                                                         \
    cudaError_t error = (call);                                                \
    if (error != cudaSuccess) {                                                \
      fprintf(stderr, "%s at line %d\n", cudaGetErrorString(error), __LINE__); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)
#define EXPECT(condition)                                   \
  if (!(condition)) {                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    exit(2);                                                \
  }
__constant__ int factor = 1;
__global__ void scale(int* v, int n) { if (threadIdx.x < n) v[threadIdx.x] *= 2 * factor; }
__global__ void shift(int* v, int n) { if (threadIdx.x < n) v[threadIdx.x] += 1; }
static void CUDART_CB note(void* p) { ++*(int*)p; }

static int first(int* v) {
  int found;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&found, v, 4, cudaMemcpyDeviceToHost));
  return found;
}

int main() {
  int *v, n = 32, one = 1, calls = 0;
  CHECK(cudaMalloc(&v, 128));
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  void* arguments[] = {&v, &n};
  cudaKernelNodeParams kp = {};
  kp.func = (void*)scale, kp.gridDim = dim3(1), kp.blockDim = dim3(32), kp.kernelParams = arguments;
  cudaMemsetParams mp = {};
  mp.dst = v, mp.elementSize = 4, mp.width = 32, mp.height = 1, mp.value = 3;
  cudaHostNodeParams hp = {note, &calls};
  // Added in another order than that of their dependencies: scale, then fill.
  cudaGraphNode_t work, fill, told;
  CHECK(cudaGraphAddKernelNode(&work, graph, nullptr, 0, &kp));
  CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &mp));
  CHECK(cudaGraphAddHostNode(&told, graph, &work, 1, &hp));
  CHECK(cudaGraphAddDependencies(graph, &fill, &work, nullptr, 1));
  EXPECT(cudaGraphAddDependencies(graph, &fill, &work, nullptr, 1) == cudaErrorInvalidValue);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 6 && calls == 1);

  // The graph changes, the executable graph does not; then it does.
  mp.value = 5;
  CHECK(cudaGraphMemsetNodeSetParams(fill, &mp));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 6);
  cudaMemsetParams given;
  CHECK(cudaGraphMemsetNodeGetParams(fill, &given));
  EXPECT(given.value == 5 && given.dst == v);
  CHECK(cudaGraphExecMemsetNodeSetParams(exec, fill, &mp));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 10);

  // Another kernel in the same node, and other arguments for it.
  cudaKernelNodeParams now;
  CHECK(cudaGraphKernelNodeGetParams(work, &now));
  EXPECT(now.func == (void*)scale && now.blockDim.x == 32 && *(int*)now.kernelParams[1] == 32);
  int few = 0;
  void* others[] = {&v, &few};
  now.kernelParams = others;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, work, &now));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 5);
  now.func = (void*)shift, now.kernelParams = arguments;
  CHECK(cudaGraphKernelNodeSetParams(work, &now));
  CHECK(cudaGraphExecKernelNodeSetParams(exec, work, &now));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 6);
  CHECK(cudaGraphNodeSetEnabled(exec, work, 0));
  unsigned enabled;
  CHECK(cudaGraphNodeGetEnabled(exec, work, &enabled));
  CHECK(cudaGraphLaunch(exec, 0));
  EXPECT(first(v) == 5 && !enabled);

  // Edges, roots, a clone, a circle.
  size_t count = 0, room = 1;
  cudaGraphNode_t from[4], to[4], node;
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  EXPECT(count == 2);
  CHECK(cudaGraphGetEdges(graph, from, to, nullptr, &count));
  EXPECT((from[0] == fill && to[0] == work) || (from[1] == fill && to[1] == work));
  CHECK(cudaGraphGetRootNodes(graph, from, &room));
  EXPECT(room == 1 && from[0] == fill);
  cudaGraph_t clone;
  CHECK(cudaGraphClone(&clone, graph));
  CHECK(cudaGraphNodeFindInClone(&node, told, clone));
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(node, &type));
  EXPECT(type == cudaGraphNodeTypeHost && node != told);
  CHECK(cudaGraphRemoveDependencies(graph, &work, &told, nullptr, 1));
  CHECK(cudaGraphNodeGetDependencies(told, nullptr, nullptr, &count));
  EXPECT(count == 0);

  // A clone runs as its graph did; with one node fewer it is no update of the first.
  cudaGraphExec_t other;
  CHECK(cudaGraphInstantiate(&other, clone, 0));
  CHECK(cudaGraphLaunch(other, 0));
  EXPECT(first(v) == 6);
  CHECK(cudaGraphDestroyNode(node));
  cudaGraphExecUpdateResultInfo info;
  EXPECT(cudaGraphExecUpdate(other, clone, &info) == cudaErrorGraphExecUpdateFailure);
  EXPECT(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  (void)cudaGetLastError();

  // A child, copies to a symbol, memory that a graph has.
  cudaGraph_t outer;
  CHECK(cudaGraphCreate(&outer, 0));
  cudaGraphNode_t set, child, alloc, free_node, copy;
  int three = 3;
  CHECK(cudaGraphAddMemcpyNodeToSymbol(&set, outer, nullptr, 0, factor, &three, sizeof three, 0, cudaMemcpyHostToDevice));
  CHECK(cudaGraphKernelNodeSetParams(work, &kp));
  CHECK(cudaGraphAddChildGraphNode(&child, outer, &set, 1, graph));
  cudaMemAllocNodeParams ap = {};
  ap.poolProps.allocType = cudaMemAllocationTypePinned;
  ap.poolProps.location = {cudaMemLocationTypeDevice, 0};
  ap.bytesize = 128;
  CHECK(cudaGraphAddMemAllocNode(&alloc, outer, &child, 1, &ap));
  CHECK(cudaGraphAddMemcpyNode1D(&copy, outer, &alloc, 1, ap.dptr, v, 128, cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddMemFreeNode(&free_node, outer, &copy, 1, ap.dptr));
  cudaGraphExec_t whole;
  CHECK(cudaGraphInstantiate(&whole, outer, 0));
  for (int k = 0; k < 2; ++k) {
    CHECK(cudaGraphLaunch(whole, 0));
    EXPECT(first(v) == 30);
  }
  CHECK(cudaGraphExecMemcpyNodeSetParamsToSymbol(whole, set, factor, &one, sizeof one, 0, cudaMemcpyHostToDevice));
  CHECK(cudaGraphLaunch(whole, 0));
  EXPECT(first(v) == 10);

  // A capture: each thing a node behind the one before, and nothing done meanwhile.
  cudaStream_t s;
  CHECK(cudaStreamCreate(&s));
  cudaGraph_t captured;
  char* scratch;
  int back = -1;
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  CHECK(cudaMallocAsync(&scratch, 128, s));
  CHECK(cudaMemsetAsync(scratch, 1, 128, s));
  shift<<<1, 32, 0, s>>>((int*)scratch, 32);
  CHECK(cudaMemcpyAsync(&back, scratch, 4, cudaMemcpyDeviceToHost, s));
  CHECK(cudaFreeAsync(scratch, s));
  CHECK(cudaLaunchHostFunc(s, note, &calls));
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t into = nullptr;
  CHECK(cudaStreamGetCaptureInfo(s, &status, &id, &into));
  EXPECT(status == cudaStreamCaptureStatusActive && id && into);
  CHECK(cudaStreamEndCapture(s, &captured));
  EXPECT(captured == into && back == -1);
  CHECK(cudaGraphGetNodes(captured, nullptr, &count));
  cudaGraphNode_t nodes[6];
  EXPECT(count == 6);
  CHECK(cudaGraphGetNodes(captured, nodes, &count));
  const cudaGraphNodeType kinds[] = {cudaGraphNodeTypeMemAlloc, cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel,
                                     cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemFree, cudaGraphNodeTypeHost};
  for (cudaGraphNode_t each : nodes) {
    CHECK(cudaGraphNodeGetType(each, &type));
    int known = 0;
    for (cudaGraphNodeType kind : kinds) known += kind == type;
    EXPECT(known == 1);
  }
  cudaGraphExec_t again;
  CHECK(cudaGraphInstantiate(&again, captured, 0));
  int before = calls;
  for (int k = 0; k < 2; ++k) CHECK(cudaGraphLaunch(again, s));
  CHECK(cudaStreamSynchronize(s));
  EXPECT(back == 0x01010102 && calls == before + 2);
  CHECK(cudaGraphDebugDotPrint(captured, "captured.dot", 0));
  remove("captured.dot");
  CHECK(cudaGraphExecDestroy(again));
  CHECK(cudaGraphDestroy(captured));
  puts("ok");
}
