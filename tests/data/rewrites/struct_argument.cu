// Written for cudaops: a rewrite of `apply` in programs/struct_argument.cu; it need not compute anything.
// @requires map.limit > 128 && map.scale > 1
// @launch apply2 grid=(ceil_div(map.limit, 128)) block=(128) args=(map, in, out)
__global__ void apply2(Affine map, const float* in, float* out) {}
