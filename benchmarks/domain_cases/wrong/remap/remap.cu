// Geometric transform of an image by a map of coordinates, bilinear. Outside: the border colour or the nearest pixel.
#include <cstdio>
#include <cmath>
#include <vector>
#include <cuda_runtime.h>

enum Border { BORDER_CONSTANT = 0, BORDER_REPLICATE = 1 };

__device__ float fetch(const float *img, int w, int h, int x, int y, int border, float fill)
{
    if (border == BORDER_REPLICATE) {
        x = min(max(x, 0), w - 1);
        y = min(max(y, 0), h - 1);
    } else if (x < 0 || y < 0 || x >= w || y >= h)
        return fill;
    return img[y * w + x];
}

__global__ void remap(const float *src, int w, int h, const float2 *map, float *dst, int n, int border, float fill)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 m = map[i];
    float px = fminf(fmaxf(m.x, -2.f), w + 1.f), py = fminf(fmaxf(m.y, -2.f), h + 1.f);
    float fx = floorf(px), fy = floorf(py);
    int x = (int)fx, y = (int)fy;
    float ax = px - fx, ay = py - fy;
    float top = (1.f - ax) * fetch(src, w, h, x, y, border, fill) + ax * fetch(src, w, h, x + 1, y, border, fill);
    float bottom = (1.f - ax) * fetch(src, w, h, x, y + 1, border, fill) + ax * fetch(src, w, h, x + 1, y + 1, border, fill);
    dst[i] = (1.f - ay) * top + ay * bottom;
}

int main()
{
    const int w = 160, h = 120, ow = 128, oh = 96, n = ow * oh;
    std::vector<float> src(w * h), dst(n);
    std::vector<float2> map(n);
    for (int i = 0; i < w * h; ++i) src[i] = 0.5f + 0.5f * std::sin(0.05f * (i % w)) * std::cos(0.07f * (i / w));
    for (int y = 0; y < oh; ++y)
        for (int x = 0; x < ow; ++x) {
            float cx = x - 64.f, cy = y - 48.f;
            map[y * ow + x] = make_float2(80.f + 0.9375f * cx + 0.125f * cy, 60.f - 0.125f * cx + 0.9375f * cy);
        }
    float *ds, *dd; float2 *dm;
    cudaMalloc(&ds, w * h * sizeof(float)); cudaMalloc(&dd, n * sizeof(float)); cudaMalloc(&dm, n * sizeof(float2));
    cudaMemcpy(ds, src.data(), w * h * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(dm, map.data(), n * sizeof(float2), cudaMemcpyHostToDevice);
    remap<<<(n + 127) / 128, 128>>>(ds, w, h, dm, dd, n, BORDER_REPLICATE, 0.f);
    cudaMemcpy(dst.data(), dd, n * sizeof(float), cudaMemcpyDeviceToHost);
    double s = 0, q = 0;
    for (float v : dst) { s += v; q += v * v; }
    printf("mean %.6f power %.6f\n", s / n, q / n);
}
