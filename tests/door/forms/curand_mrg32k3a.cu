// cuRAND's MRG32k3a, its subsequences and offsets, normal numbers kept for the next call
#include <cstdio>
#include <curand_kernel.h>

__global__ void seed(curandStateMRG32k3a_t *states, unsigned long long number, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) curand_init(number, i, 3 * i, &states[i]);
}

__global__ void draw(curandStateMRG32k3a_t *states, unsigned *words, float *uniform, double *normal, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    curandStateMRG32k3a_t mine = states[i];
    unsigned x = 0;
    for (int k = 0; k < 10; ++k) x = x * 31 + curand(&mine);
    skipahead(1ull << 40, &mine);
    x ^= curand(&mine);
    skipahead_sequence(5, &mine);
    words[i] = x ^ curand(&mine);
    uniform[i] = curand_uniform(&mine);
    normal[i] = curand_normal_double(&mine) + curand_normal_double(&mine) + curand_uniform_double(&mine);
    states[i] = mine;
}

int main()
{
    const int n = 1000;
    curandStateMRG32k3a_t *states;
    unsigned *words;
    float *uniform;
    double *normal;
    cudaMallocManaged(&states, n * sizeof *states);
    cudaMallocManaged(&words, n * sizeof *words);
    cudaMallocManaged(&uniform, n * sizeof *uniform);
    cudaMallocManaged(&normal, n * sizeof *normal);
    seed<<<(n + 127) / 128, 128>>>(states, 20260101ull << 7, n);
    draw<<<(n + 127) / 128, 128>>>(states, words, uniform, normal, n);
    cudaDeviceSynchronize();
    unsigned all = 0;
    double u = 0, z = 0;
    for (int i = 0; i < n; ++i) all = all * 33 ^ words[i], u += uniform[i], z += normal[i];
    std::printf("words %08x uniform %.4f normal %.3f\n", all, u / n, z / n);
    cudaFree(states), cudaFree(words), cudaFree(uniform), cudaFree(normal);
}
