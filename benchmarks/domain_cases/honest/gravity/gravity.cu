// All-pairs gravity with Plummer softening.
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Acc { float ax, ay, az; };

__global__ void gravity(const float4 *body, Acc *acc, int n, float eps2)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = body[i];
    float ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float d2 = dx * dx + dy * dy + dz * dz + eps2;
        float inv = 1.0f / sqrtf(d2);
        float f = other.w * (inv * inv * inv);
        ax += f * dx;
        ay += f * dy;
        az += f * dz;
    }
    acc[i].ax = ax;
    acc[i].ay = ay;
    acc[i].az = az;
}

int main()
{
    const int n = 300;
    std::vector<float4> b(n);
    std::vector<Acc> a(n);
    for (int i = 0; i < n; i++)
        b[i] = make_float4(cosf(i * 0.7f) * (1 + i % 5), sinf(i * 1.3f) * 2, (i % 17) * 0.1f, 1.0f + (i % 3));
    float4 *db; Acc *da;
    cudaMalloc(&db, n * sizeof(float4));
    cudaMalloc(&da, n * sizeof(Acc));
    cudaMemcpy(db, b.data(), n * sizeof(float4), cudaMemcpyHostToDevice);
    gravity<<<(n + 63) / 64, 64>>>(db, da, n, 0.01f);
    cudaMemcpy(a.data(), da, n * sizeof(Acc), cudaMemcpyDeviceToHost);
    double m = 0;
    for (auto &v : a) m += std::sqrt((double)v.ax * v.ax + (double)v.ay * v.ay + (double)v.az * v.az);
    printf("mean |a| = %.6f\n", m / n);
    return 0;
}
