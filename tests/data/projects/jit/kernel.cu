// What cupy_app.py and nvrtc_app.py compile while they run.
extern "C" __global__ void smooth(const float* in, float* out, int rows, int columns) {
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
