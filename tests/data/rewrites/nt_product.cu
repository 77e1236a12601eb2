// Written for cudaops: a rewrite of `similarity` in programs/nt_product.cu; it need not compute anything.
// @launch nt grid=(ceil_div(n,32), ceil_div(m,32)) block=(32, 8) args=(queries, keys, scores, m, n, k)
__global__ void nt(const float* q, const float* k, float* s, int m, int n, int d) {}
