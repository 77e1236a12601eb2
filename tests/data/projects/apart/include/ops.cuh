#ifndef OPS_CUH
#define OPS_CUH
#include <cuda_runtime.h>
namespace ops {
__global__ void scale(float *s, int rows, float by);
__global__ void rowsum(const float *a, float *s, int rows, int cols);
void sum_again(const float *a, float *s, int rows, int cols);
}
#endif
