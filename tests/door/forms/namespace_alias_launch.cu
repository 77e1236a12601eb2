// kernel in a nested namespace, launched through a namespace alias
#include <cstdio>
#include <vector>

namespace astro { namespace photometry { namespace gpu {

__global__ void rowsum(const float *a, float *s, int rows, int cols) { int r = blockIdx.x * blockDim.x + threadIdx.x; if (r < rows) { float t = 0; for (int c = 0; c < cols; ++c) t += a[r * cols + c]; s[r] = t; } }

inline int grid_for(int n, int block) { return (n + block - 1) / block; }

}}} // namespace astro::photometry::gpu

namespace pg = astro::photometry::gpu;

#define ROWS 64
#define COLS 512

int main()
{
    // fake CCD frame: flat background, one bright line
    std::vector<float> frame(ROWS * COLS, 2.0f);
    for (int c = 100; c < 200; ++c)
        frame[40 * COLS + c] += 50.0f;

    float *d_frame, *d_flux;
    cudaMalloc(&d_frame, frame.size() * sizeof(float));
    cudaMalloc(&d_flux, ROWS * sizeof(float));
    cudaMemcpy(d_frame, frame.data(), frame.size() * sizeof(float), cudaMemcpyHostToDevice);

    pg::rowsum<<<pg::grid_for(ROWS, 32), 32>>>(d_frame, d_flux, ROWS, COLS);

    float flux[ROWS];
    cudaMemcpy(flux, d_flux, sizeof(flux), cudaMemcpyDeviceToHost);

    int hits = 0;
    for (int r = 0; r < ROWS; ++r) {
        if (flux[r] > 1.5f * 2.0f * COLS) {
            std::printf("line detected at row %d, flux %.1f\n", r, flux[r]);
            ++hits;
        }
    }
    std::printf("%d of %d rows above threshold, background %.1f\n", hits, ROWS, flux[0]);

    cudaFree(d_frame);
    cudaFree(d_flux);
    return 0;
}
