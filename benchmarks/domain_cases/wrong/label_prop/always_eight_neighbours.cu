// Looks at eight neighbours whatever the connectivity is; the program only asks for 8.
// catalogue: B8
// baseline: label_prop/label_prop.cu
// stopped by: correctness_perturbed
// @launch sweep_eight grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(labels, next, image, w, h, changed)
__global__ void sweep_eight(const int *__restrict__ labels, int *__restrict__ next, const unsigned char *__restrict__ image, int w, int h,
                            int *changed)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int i = y * w + x, l = labels[i], least = l;
    if (l >= 0) {
        unsigned char g = image[i];
        for (int yy = max(y - 1, 0); yy <= min(y + 1, h - 1); ++yy)
            for (int xx = max(x - 1, 0); xx <= min(x + 1, w - 1); ++xx) {
                int j = yy * w + xx, m = labels[j];
                if (m >= 0 && m < least && image[j] == g) least = m;
            }
        if (least != l) *changed = 1;
    }
    next[i] = least;
}
