// Detector: append (channel, time, amplitude) for every sample above threshold. Order of the list is arbitrary.
#include <algorithm>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

struct Hit { int channel; int time; int amplitude; };

__global__ void collect_hits(const short* samples, Hit* hits, int* n_hits, int channels, int length, short threshold)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y;
    if (t >= length || c >= channels) return;
    short s = samples[c * length + t];
    if (s > threshold) {
        int slot = atomicAdd(n_hits, 1);
        hits[slot].channel = c;
        hits[slot].time = t;
        hits[slot].amplitude = s - threshold;
    }
}

int main()
{
    const int channels = 12, length = 700;
    std::vector<short> s(channels * length);
    for (int i = 0; i < channels * length; ++i) s[i] = (short)((i * 2654435761u >> 20) & 1023);
    short* ds; Hit* dh; int* dn;
    cudaMalloc(&ds, s.size() * sizeof(short));
    cudaMalloc(&dh, s.size() * sizeof(Hit));
    cudaMalloc(&dn, sizeof(int));
    cudaMemset(dn, 0, sizeof(int));
    cudaMemcpy(ds, s.data(), s.size() * sizeof(short), cudaMemcpyHostToDevice);
    collect_hits<<<dim3((length + 127) / 128, channels), 128>>>(ds, dh, dn, channels, length, 900);
    int n;
    cudaMemcpy(&n, dn, sizeof(int), cudaMemcpyDeviceToHost);
    std::vector<Hit> h(n);
    cudaMemcpy(h.data(), dh, n * sizeof(Hit), cudaMemcpyDeviceToHost);
    std::sort(h.begin(), h.end(), [](const Hit& a, const Hit& b) { return a.channel != b.channel ? a.channel < b.channel : a.time < b.time; });
    long sum = 0;
    for (int i = 0; i < n; ++i) sum += (long)(i % 7 + 1) * (h[i].channel * 1000 + h[i].time + h[i].amplitude);
    printf("%d hits, checksum %ld\n", n, sum);
    return 0;
}
