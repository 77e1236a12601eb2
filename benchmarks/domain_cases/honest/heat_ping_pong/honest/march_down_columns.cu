// A thread marches down eight rows of a column with the rows above, at and below in registers; no shared memory.
// baseline: heat_ping_pong/heat_ping_pong.cu
// @requires nx > 0 && ny > 0 && gridDim.x * blockDim.x >= nx && gridDim.y * blockDim.y >= ny && gridDim.z * blockDim.z == 1
// @launch fast grid=(ceil_div(nx, 64), ceil_div(ny, 8)) block=(64) args=(now, then, nx, ny, k)
__global__ void fast(const float* __restrict__ now, float* __restrict__ then, int nx, int ny, float k)
{
    const int c = blockIdx.x * 64 + threadIdx.x, first = blockIdx.y * 8;
    if (c >= nx) return;
    const int last = min(first + 8, ny);
    float above = first > 0 ? now[(first - 1) * nx + c] : 0.f, mid = now[first * nx + c];
    for (int r = first; r < last; ++r) {
        const float below = r + 1 < ny ? now[(r + 1) * nx + c] : 0.f;
        float v = mid;
        if (c > 0 && c < nx - 1 && r > 0 && r < ny - 1) {
            const float sides = now[r * nx + c - 1] + now[r * nx + c + 1];
            v = mid + k * (sides + (above + below) - 4.0f * mid);
        }
        then[r * nx + c] = v;
        above = mid;
        mid = below;
    }
}
