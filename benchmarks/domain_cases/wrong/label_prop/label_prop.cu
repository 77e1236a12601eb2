// One sweep of connected-component labelling, from one label image to another: the least label among neighbours of the same grey
// value. Negative labels are background. *changed becomes 1 where anything changes.
#include <cstdio>
#include <vector>
#include <utility>
#include <cuda_runtime.h>

__global__ void sweep(const int *labels, int *next, const unsigned char *image, int w, int h, int connectivity, int *changed)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int i = y * w + x, l = labels[i];
    if (l < 0) { next[i] = l; return; }
    int least = l;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) {
            if (connectivity == 4 && dx != 0 && dy != 0) continue;
            int xx = x + dx, yy = y + dy;
            if (xx < 0 || yy < 0 || xx >= w || yy >= h) continue;
            int j = yy * w + xx;
            if (image[j] == image[i] && labels[j] >= 0 && labels[j] < least) least = labels[j];
        }
    next[i] = least;
    if (least != l) *changed = 1;
}

int main()
{
    const int w = 128, h = 96, n = w * h;
    std::vector<unsigned char> img(n);
    std::vector<int> lab(n);
    for (int i = 0; i < n; ++i) {
        int x = i % w, y = i / w;
        bool on = (x / 5 + y / 3) % 3 != 0 || x % 7 == 2;
        img[i] = on ? 255 : 0;
        lab[i] = on ? i : -1;
    }
    int *a, *b, *flag; unsigned char *di;
    cudaMalloc(&a, n * sizeof(int)); cudaMalloc(&b, n * sizeof(int)); cudaMalloc(&flag, sizeof(int)); cudaMalloc(&di, n);
    cudaMemcpy(a, lab.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    cudaMemcpy(di, img.data(), n, cudaMemcpyHostToDevice);
    int sweeps = 0, changed = 1;
    while (changed && sweeps < 6) {
        cudaMemset(flag, 0, sizeof(int));
        sweep<<<dim3(w / 32, h / 8), dim3(32, 8)>>>(a, b, di, w, h, 8, flag);
        cudaMemcpy(&changed, flag, sizeof(int), cudaMemcpyDeviceToHost);
        std::swap(a, b);
        ++sweeps;
    }
    cudaMemcpy(lab.data(), a, n * sizeof(int), cudaMemcpyDeviceToHost);
    long long s = 0;
    for (int l : lab) s += l;
    printf("%d sweeps, labels %lld, changed %d\n", sweeps, s, changed);
}
