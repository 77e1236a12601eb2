// A kernel is called as a function template of the C++ library, whose names are all visible.
#include <algorithm>
#include <cstdio>
#include <string>
#include <cuda_runtime.h>
using namespace std;
#define PARTS 4
__device__ void turned(const char *from, char *to, int part, int each, int more) {
    for (int i = 0; i < each + more; ++i) to[part * each + i] = (char)(from[part * each + i] ^ 1);
}
__global__ void transform(char *from, char *to, int each, int length) {
    int part = threadIdx.x, more = part == PARTS - 1 ? length - each * PARTS : 0;
    turned(from, to, part, each, more);
}
int main() {
    string text = "letters that are turned over";
    char *a, *b;
    cudaMalloc((void **)&a, text.length());
    cudaMalloc((void **)&b, text.length());
    cudaMemcpy(a, text.data(), text.length(), cudaMemcpyHostToDevice);
    transform<<<1, PARTS>>>(a, b, (int)text.length() / PARTS, text.length());
    string back(text.length(), ' ');
    cudaMemcpy(&back[0], b, text.length(), cudaMemcpyDeviceToHost);
    printf("%s\n", back.c_str());
    return back[0] == ('l' ^ 1) ? 0 : 1;
}
