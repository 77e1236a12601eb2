// Kernels that main.cpp launches by CUDA's driver API, from kernel.cubin.
struct Band {
    float* rows;
    int width;
    float by;
};

extern "C" __global__ void smooth(const float* __restrict__ in, float* __restrict__ out, int rows,
                                  int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float sum = 0.0f;
    for (int dy = -3; dy <= 3; ++dy)
        for (int dx = -3; dx <= 3; ++dx) {
            int y = min(max(row + dy, 0), rows - 1), x = min(max(column + dx, 0), columns - 1);
            sum += in[y * columns + x];
        }
    out[row * columns + column] = sum / 49.0f;
}

namespace ops {
template <class T>
__global__ void shift(T* values, T by, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += by;
}
template __global__ void shift<float>(float*, float, int);

__constant__ float gain;

__global__ void amplify(float* values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= gain;
}

__global__ void scale(Band band, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * band.width) band.rows[i] *= band.by;
}
}  // namespace ops
