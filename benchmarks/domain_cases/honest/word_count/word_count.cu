// wc: words and lines of a text.
#include <cstdio>
#include <cstring>
#include <string>
#include <cuda_runtime.h>

__device__ bool blank(char c) { return c == ' ' || c == '\n' || c == '\t'; }

__global__ void word_count(const char* text, int length, unsigned int* words, unsigned int* lines)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= length) return;
    if (!blank(text[i]) && (i == 0 || blank(text[i - 1]))) atomicAdd(words, 1u);
    if (text[i] == '\n') atomicAdd(lines, 1u);
}

int main()
{
    std::string s;
    const char* parts[] = {"lorem", " ", "ipsum dolor", "\n", "sit\tamet, ", "x", "\n\n", "  "};
    unsigned r = 12345;
    while (s.size() < 9001) { r = r * 1103515245u + 12345u; s += parts[(r >> 16) & 7]; }
    char* d; unsigned int *c, h[2];
    cudaMalloc(&d, s.size());
    cudaMalloc(&c, 2 * sizeof(unsigned int));
    cudaMemcpy(d, s.data(), s.size(), cudaMemcpyHostToDevice);
    cudaMemset(c, 0, 2 * sizeof(unsigned int));
    word_count<<<((int)s.size() + 255) / 256, 256>>>(d, (int)s.size(), c, c + 1);
    cudaMemcpy(h, c, sizeof(h), cudaMemcpyDeviceToHost);
    printf("%u words, %u lines, %d characters\n", h[0], h[1], (int)s.size());
    return 0;
}
