// Takes neighbours for connected by their labels alone: in the captured image all that is no background has one grey value.
// catalogue: C7 B8
// baseline: label_prop/label_prop.cu
// stopped by: correctness_perturbed
// @launch sweep_labels grid=(ceil_div(w, 64), ceil_div(h, 4)) block=(64, 4) args=(labels, next, w, h, connectivity, changed)
__global__ void sweep_labels(const int *__restrict__ labels, int *__restrict__ next, int w, int h, int connectivity, int *changed)
{
    int x = blockIdx.x * 64 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y;
    if (x >= w || y >= h) return;
    int i = y * w + x, l = labels[i];
    unsigned least = (unsigned)l;                  // background is the largest unsigned
    if (l >= 0) {
        bool u = y > 0, d = y < h - 1, left = x > 0, r = x < w - 1;
        if (u) least = min(least, (unsigned)labels[i - w]);
        if (d) least = min(least, (unsigned)labels[i + w]);
        if (left) least = min(least, (unsigned)labels[i - 1]);
        if (r) least = min(least, (unsigned)labels[i + 1]);
        if (connectivity != 4) {
            if (u && left) least = min(least, (unsigned)labels[i - w - 1]);
            if (u && r) least = min(least, (unsigned)labels[i - w + 1]);
            if (d && left) least = min(least, (unsigned)labels[i + w - 1]);
            if (d && r) least = min(least, (unsigned)labels[i + w + 1]);
        }
        if (least != (unsigned)l) *changed = 1;
    }
    next[i] = (int)least;
}
