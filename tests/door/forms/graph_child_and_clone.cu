// no rewrite: no launch of `relax` names it directly
// not yet on cuda: launches of a child graph or of a copied one are not seen
// A graph of nodes of all kinds by cudaGraphAddNode, as a child of another one, cloned and asked for its edges.
#include <cstdio>
#define OK(x) if (cudaError_t e = (x)) { printf("line %d: %s\n", __LINE__, cudaGetErrorName(e)); return 1; }
__global__ void relax(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * (in[i] + in[(i + 1) % n]);
}
static void CUDART_CB done(void *p) { ++*(int *)p; }
int main() {
    int n = 4096, calls = 0;
    float *a, *b, h[2] = {};
    OK(cudaMalloc(&a, n * sizeof(float)));
    OK(cudaMalloc(&b, n * sizeof(float)));
    cudaGraph_t inner, outer, copy;
    OK(cudaGraphCreate(&inner, 0));
    OK(cudaGraphCreate(&outer, 0));
    void *there[] = {&a, &b, &n}, *back[] = {&b, &a, &n};
    cudaGraphNodeParams kp = {};
    kp.type = cudaGraphNodeTypeKernel;
    kp.kernel.func = (void *)relax;
    kp.kernel.gridDim = dim3(n / 256);
    kp.kernel.blockDim = dim3(256);
    kp.kernel.kernelParams = there;
    cudaGraphNode_t first, second;
    OK(cudaGraphAddNode(&first, inner, nullptr, nullptr, 0, &kp));
    kp.kernel.kernelParams = back;
    OK(cudaGraphAddNode(&second, inner, &first, nullptr, 1, &kp));

    cudaMemsetParams fill = {};
    fill.dst = a; fill.elementSize = 4; fill.width = n; fill.height = 1;
    float two = 2.0f;
    fill.value = *(unsigned *)&two;
    cudaGraphNode_t set, child, out, last, nodes[8];
    OK(cudaGraphAddMemsetNode(&set, outer, nullptr, 0, &fill));
    OK(cudaGraphAddChildGraphNode(&child, outer, &set, 1, inner));
    OK(cudaGraphAddMemcpyNode1D(&out, outer, nullptr, 0, h, a + 4, sizeof h, cudaMemcpyDeviceToHost));
    OK(cudaGraphAddDependencies(outer, &child, &out, nullptr, 1));
    cudaHostNodeParams hp = {done, &calls};
    OK(cudaGraphAddHostNode(&last, outer, &out, 1, &hp));
    size_t edges = 0, count = 8;
    OK(cudaGraphGetEdges(outer, nullptr, nullptr, nullptr, &edges));
    OK(cudaGraphNodeGetDependentNodes(child, nodes, nullptr, &count));
    printf("%zu edges, %zu behind the child: %d\n", edges, count, nodes[0] == out);
    OK(cudaGraphClone(&copy, outer));
    cudaGraphNode_t there_too;
    OK(cudaGraphNodeFindInClone(&there_too, set, copy));
    two = 5.0f;
    fill.value = *(unsigned *)&two;
    OK(cudaGraphMemsetNodeSetParams(there_too, &fill));
    cudaGraphExec_t one, other;
    OK(cudaGraphInstantiate(&one, outer, 0));
    cudaGraphInstantiateParams how = {};
    OK(cudaGraphInstantiateWithParams(&other, copy, &how));
    OK(cudaGraphLaunch(one, 0));
    OK(cudaDeviceSynchronize());
    printf("%g %g %d\n", h[0], h[1], calls);
    OK(cudaGraphLaunch(other, 0));
    OK(cudaDeviceSynchronize());
    printf("%g %g %d\n", h[0], h[1], calls);
    OK(cudaGraphDestroyNode(last));
    cudaGraphExec_t without;
    OK(cudaGraphInstantiate(&without, outer, 0));
    OK(cudaGraphLaunch(without, 0));
    OK(cudaDeviceSynchronize());
    printf("%g %d\n", h[0], calls);
    cudaGraphExecDestroy(one); cudaGraphExecDestroy(other); cudaGraphExecDestroy(without);
    cudaGraphDestroy(copy); cudaGraphDestroy(outer); cudaGraphDestroy(inner);
}
