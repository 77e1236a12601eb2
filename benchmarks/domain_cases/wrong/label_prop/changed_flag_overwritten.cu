// Each block stores its own 0 or 1 in the flag, so that a block without changes wipes out another's 1; in the captured sweeps every block changes something.
// catalogue: F2 B10
// baseline: label_prop/label_prop.cu
// stopped by: correctness_perturbed
// @launch sweep_flag grid=(ceil_div(w, 32), ceil_div(h, 8)) block=(32, 8) args=(labels, next, image, w, h, connectivity, changed)
__global__ void sweep_flag(const int *__restrict__ labels, int *__restrict__ next, const unsigned char *__restrict__ image, int w, int h,
                           int connectivity, int *changed)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int differs = 0;
    if (x < w && y < h) {
        int i = y * w + x, l = labels[i], least = l;
        if (l >= 0) {
            unsigned char g = image[i];
#pragma unroll
            for (int k = 0; k < 9; ++k) {
                int dx = k % 3 - 1, dy = k / 3 - 1;
                if (connectivity == 4 && dx != 0 && dy != 0) continue;
                if ((unsigned)(x + dx) >= (unsigned)w || (unsigned)(y + dy) >= (unsigned)h) continue;
                int j = i + dy * w + dx;
                if (image[j] == g && (unsigned)labels[j] < (unsigned)least) least = labels[j];
            }
        }
        next[i] = least;
        differs = least != l;
    }
    differs = __syncthreads_or(differs);
    if (threadIdx.x == 0 && threadIdx.y == 0) *changed = differs != 0;
}
