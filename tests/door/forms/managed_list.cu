// A list in managed memory: the pointers that lead on stand in memory, not among the arguments.
#include <cstdio>
struct Item { int key; Item *next; };
__global__ void total(const Item *at, int *out) {
    int sum = 0;
    for (; at; at = at->next) sum += at->key;
    *out = sum;
}
int main() {
    Item *first = nullptr;
    for (int i = 0; i < 100; ++i) {
        Item *it;
        cudaMallocManaged(&it, sizeof(Item));
        it->key = i;
        it->next = first;
        first = it;
    }
    int *out;
    cudaMallocManaged(&out, sizeof(int));
    total<<<1, 1>>>(first, out);
    cudaDeviceSynchronize();
    printf("%d\n", *out);
}
