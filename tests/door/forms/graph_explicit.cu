// no rewrite: no launch of `fill` names it directly
// A graph made node by node: a kernel node and a host node.
#include <cstdio>
__global__ void fill(float *v, int n, float x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = x;
}
void said(void *p) { printf("host node %d\n", *(int *)p); }
int main() {
    int n = 4096, tag = 7; float x = 3.0f, *d, h = 0;
    cudaMalloc(&d, n * sizeof(float));
    cudaGraph_t g; cudaGraphExec_t e; cudaGraphNode_t kn, hn;
    cudaGraphCreate(&g, 0);
    void *args[] = {&d, &n, &x};
    cudaKernelNodeParams kp = {};
    kp.func = (void *)fill; kp.gridDim = dim3(16); kp.blockDim = dim3(256); kp.kernelParams = args;
    cudaGraphAddKernelNode(&kn, g, nullptr, 0, &kp);
    cudaHostNodeParams hp = {}; hp.fn = said; hp.userData = &tag;
    cudaGraphAddHostNode(&hn, g, &kn, 1, &hp);
    cudaGraphInstantiate(&e, g, 0);
    cudaGraphLaunch(e, 0);
    cudaDeviceSynchronize();
    cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost);
    printf("%g\n", h);
}
