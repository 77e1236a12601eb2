// Porter-Duff "over" of 8-bit RGBA sprites on a background, integer arithmetic that rounds down.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

__device__ unsigned char blend(unsigned char f, unsigned char b, unsigned char a)
{
    return (unsigned char)((f * a + b * (255 - a)) / 255);
}

__global__ void over(const uchar4 *fg, int fg_pitch, uchar4 *bg, int bg_pitch, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) {
        uchar4 f = fg[y * fg_pitch + x], b = bg[y * bg_pitch + x];
        uchar4 r;
        r.x = blend(f.x, b.x, f.w);
        r.y = blend(f.y, b.y, f.w);
        r.z = blend(f.z, b.z, f.w);
        r.w = blend(255, b.w, f.w);
        bg[y * bg_pitch + x] = r;
    }
}

int main()
{
    const int w = 96, h = 80;
    std::vector<uchar4> f(w * h), b(w * h);
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            int dx = x - 48, dy = y - 40;
            f[y * w + x] = make_uchar4(x * 2, y * 3, (x ^ y) * 2, dx * dx + dy * dy < 900 ? 255 : 0);
            b[y * w + x] = make_uchar4(200 - x, 180 - y, (x * y) & 255, 255);
        }
    uchar4 *df, *db;
    cudaMalloc(&df, w * h * 4); cudaMalloc(&db, w * h * 4);
    cudaMemcpy(df, f.data(), w * h * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), w * h * 4, cudaMemcpyHostToDevice);
    over<<<dim3(w / 16, h / 16), dim3(16, 16)>>>(df, w, db, w, w, h);
    cudaMemcpy(b.data(), db, w * h * 4, cudaMemcpyDeviceToHost);
    long r = 0, g = 0, bl = 0, a = 0;
    for (auto p : b) { r += p.x; g += p.y; bl += p.z; a += p.w; }
    printf("%ld %ld %ld %ld\n", r, g, bl, a);
}
