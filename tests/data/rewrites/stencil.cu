// Written for cudaops: a rewrite of `blur` in programs/stencil.cu; it need not compute anything.
// @launch blur2 grid=(gridDim.x) block=(256) smem=256*4 args=(in, out, n)
__global__ void blur2(const float* in, float* out, int n) { out[0] = weights[RADIUS]; }
