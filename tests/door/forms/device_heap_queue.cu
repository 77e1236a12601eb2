// work lists from the device's heap: each thread makes its own, another kernel frees them
#include <cstdio>
#include <cstdlib>

struct Node { int value; Node *next; };

__global__ void build(Node **lists, int lists_count)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= lists_count) return;
    Node *head = nullptr;
    for (int k = 0; k <= i % 5; ++k) {
        Node *n = (Node *)malloc(sizeof(Node));
        n->value = i * 10 + k;
        n->next = head;
        head = n;
    }
    lists[i] = head;
}

__global__ void drain(Node **lists, int lists_count, int *sums)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= lists_count) return;
    int s = 0;
    for (Node *n = lists[i]; n;) {
        s += n->value;
        Node *gone = n;
        n = n->next;
        free(gone);
    }
    lists[i] = nullptr;
    sums[i] = s;
}

__global__ void smooth(const int *in, int *out, int n)
{
    int *local = new int[3];
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) {
        for (int k = 0; k < 3; ++k) local[k] = in[(i + k) % n];
        out[i] = local[0] + 2 * local[1] + local[2];
    }
    delete[] local;
}

int main()
{
    const int n = 500;
    cudaDeviceSetLimit(cudaLimitMallocHeapSize, 8 << 20);
    Node **lists;
    int *sums, *out;
    cudaMalloc(&lists, n * sizeof *lists);
    cudaMallocManaged(&sums, n * sizeof *sums);
    cudaMallocManaged(&out, n * sizeof *out);
    build<<<(n + 63) / 64, 64>>>(lists, n);
    drain<<<(n + 63) / 64, 64>>>(lists, n, sums);
    smooth<<<(n + 63) / 64, 64>>>(sums, out, n);
    if (cudaDeviceSynchronize() != cudaSuccess) return EXIT_FAILURE;
    long long total = 0;
    for (int i = 0; i < n; ++i) total += out[i];
    printf("total %lld last %d\n", total, sums[n - 1]);
    cudaFree(lists);
    cudaFree(sums);
    cudaFree(out);
    return 0;
}
