// Written for cudaops: a rewrite of `rotate` in programs/indirect.cu; it need not compute anything.
// @launch rotate grid=(1) block=(blockDim.x) args=(p)
__global__ void rotate(int* p) {}
