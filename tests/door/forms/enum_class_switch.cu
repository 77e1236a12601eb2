// enum class kernel parameter and a switch on it in the kernel
#include <cstdint>
#include <cstdio>
#include <vector>

enum class Boundary : std::uint8_t { Periodic, Reflect, Zero };

__device__ inline short fetch(const short *u, long long i, long long n, Boundary bc)
{
    if (i >= 0 && i < n)
        return u[i];
    switch (bc) {
    case Boundary::Periodic:
        return u[(i + n) % n];
    case Boundary::Reflect:
        return u[i < 0 ? -i - 1 : 2 * n - 1 - i];
    case Boundary::Zero:
    default:
        return 0;
    }
}

__global__ void box_filter(const short *u, int *out, long long n, int radius, Boundary bc)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int s = 0;
    for (int k = -radius; k <= radius; ++k)
        s += fetch(u, i + k, n, bc);
    out[i] = s;
}

const char *to_string(Boundary b)
{
    switch (b) {
    case Boundary::Periodic: return "periodic";
    case Boundary::Reflect: return "reflect";
    case Boundary::Zero: return "zero";
    }
    return "?";
}

int main()
{
    const long long n = 3001;
    const int radius = 6;
    std::vector<short> u(n);
    std::vector<int> out(n);
    for (long long i = 0; i < n; ++i)
        u[i] = static_cast<short>((i * i) % 97 - 40);
    short *du;
    int *dout;
    cudaMalloc(&du, n * sizeof(short));
    cudaMalloc(&dout, n * sizeof(int));
    cudaMemcpy(du, u.data(), n * sizeof(short), cudaMemcpyHostToDevice);
    for (auto bc : {Boundary::Periodic, Boundary::Reflect, Boundary::Zero}) {
        box_filter<<<unsigned((n + 127) / 128), 128>>>(du, dout, n, radius, bc);
        cudaMemcpy(out.data(), dout, n * sizeof(int), cudaMemcpyDeviceToHost);
        std::printf("%-9s left %d mid %d right %d\n", to_string(bc), out[0], out[n / 2], out[n - 1]);
    }
    cudaFree(du);
    cudaFree(dout);
    return 0;
}
