// Written for cudaops: a rewrite of `apply` in programs/struct_argument.cu; it need not compute anything.
// @launch apply2 grid=(gridDim.x) block=(128) args=(map, in, out)
__global__ void apply2(Affine map, const float* in, float* out) {}
