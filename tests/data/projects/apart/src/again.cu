#include "ops.cuh"
namespace ops {
void sum_again(const float *a, float *s, int rows, int cols) {
    rowsum<<<(rows + 63) / 64, 64>>>(a, s, rows, cols);
    scale<<<(rows + 63) / 64, 64>>>(s, rows, 2.0f);
}
}
