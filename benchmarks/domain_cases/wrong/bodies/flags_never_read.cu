// Neither pinned bodies nor ghosts are told from others, since no captured body has a flag.
// catalogue: C7 B8
// baseline: bodies/bodies.cu
// stopped by: correctness_perturbed
// @launch advance_plain grid=(ceil_div(n, 256)) block=(256) args=(bodies, n, w)
__global__ void advance_plain(Body *bodies, int n, World w)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    Body b = bodies[i];
    if (b.layer < 0) return;
    if (b.inv_mass > 0.f) {
        b.vel[0] += w.gravity.x * w.dt;
        b.vel[1] += w.gravity.y * w.dt;
        b.vel[2] += w.gravity.z * w.dt;
        for (int k = 0; k < 3; ++k) b.pos[k] += b.vel[k] * w.dt;
        if (b.pos[1] < w.floor) {
            b.pos[1] = w.floor;
            b.vel[1] = b.vel[1] < 0.f ? -w.bounce * b.vel[1] : b.vel[1];
        }
    }
    float v2 = b.vel[0] * b.vel[0] + b.vel[1] * b.vel[1] + b.vel[2] * b.vel[2];
    b.idle = v2 < w.sleep ? min(b.idle + 1, 255) : 0;
    bodies[i] = b;
}
