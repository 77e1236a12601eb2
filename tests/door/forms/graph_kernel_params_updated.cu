// A graph that is captured once; each step sets the arguments of its kernel's node in the executable graph, and
// at the end another capture updates it whole.
#include <cstdio>
#include <vector>
#define OK(x) if (cudaError_t e = (x)) { printf("line %d: %s\n", __LINE__, cudaGetErrorName(e)); return 1; }
__global__ void step(float *v, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = v[i] * 0.5f + dt;
}
int main() {
    int n = 8192;
    float *v, h = 0, dt = 1.0f;
    OK(cudaMalloc(&v, n * sizeof(float)));
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    cudaGraph_t graph, again;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(v, 0, n * sizeof(float), s));
    step<<<n / 128, 128, 0, s>>>(v, n, dt);
    OK(cudaMemcpyAsync(&h, v + 5, sizeof h, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamEndCapture(s, &graph));
    size_t count = 0, roots = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    OK(cudaGraphGetRootNodes(graph, nullptr, &roots));
    std::vector<cudaGraphNode_t> nodes(count);
    OK(cudaGraphGetNodes(graph, nodes.data(), &count));
    cudaGraphNode_t kernel = nullptr, fill = nullptr;
    int kinds[3] = {};
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        OK(cudaGraphNodeGetType(node, &type));
        ++kinds[type];
        if (type == cudaGraphNodeTypeKernel) kernel = node;
        if (type == cudaGraphNodeTypeMemset) fill = node;
    }
    printf("%zu nodes, %zu roots: %d %d %d\n", count, roots, kinds[0], kinds[1], kinds[2]);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    cudaKernelNodeParams params = {};
    OK(cudaGraphKernelNodeGetParams(kernel, &params));
    for (int k = 0; k < 3; ++k) {
        dt = 1.0f + k;
        void *args[] = {&v, &n, &dt};
        params.kernelParams = args;
        OK(cudaGraphExecKernelNodeSetParams(exec, kernel, &params));
        if (k) OK(cudaGraphNodeSetEnabled(exec, fill, 0));
        OK(cudaGraphLaunch(exec, s));
        OK(cudaStreamSynchronize(s));
        printf("%g\n", h);
    }
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(v, 0, n * sizeof(float), s));
    step<<<n / 256, 256, 0, s>>>(v, n, 7.0f);
    OK(cudaMemcpyAsync(&h, v + 6, sizeof h, cudaMemcpyDeviceToHost, s));
    OK(cudaStreamEndCapture(s, &again));
    cudaGraphExecUpdateResultInfo info;
    OK(cudaGraphExecUpdate(exec, again, &info));
    OK(cudaGraphNodeSetEnabled(exec, fill, 1));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    printf("%g, update %d\n", h, info.result);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(again);
    cudaGraphDestroy(graph);
    cudaFree(v);
}
