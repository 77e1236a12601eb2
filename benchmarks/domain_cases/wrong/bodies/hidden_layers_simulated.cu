// Keeps the layer in an unsigned byte, which is never negative, so that layers below 0 are simulated; captured layers are 0 to 2.
// catalogue: C7
// baseline: bodies/bodies.cu
// stopped by: correctness_perturbed
// @launch advance_layers grid=(ceil_div(n, 256)) block=(256) args=(bodies, n, w)
__global__ void advance_layers(Body *bodies, int n, World w)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    Body b = bodies[i];
    unsigned char layer = b.layer;
    if (layer < 0) return;
    if (b.inv_mass > 0.f && !(b.flags & PINNED)) {
        b.vel[0] += w.gravity.x * w.dt;
        b.vel[1] += w.gravity.y * w.dt;
        b.vel[2] += w.gravity.z * w.dt;
        for (int k = 0; k < 3; ++k) b.pos[k] += b.vel[k] * w.dt;
        if (b.pos[1] < w.floor && !(b.flags & GHOST)) {
            b.pos[1] = w.floor;
            if (b.vel[1] < 0.f) b.vel[1] = -w.bounce * b.vel[1];
        }
    }
    float v2 = b.vel[0] * b.vel[0] + b.vel[1] * b.vel[1] + b.vel[2] * b.vel[2];
    b.idle = v2 < w.sleep ? min(b.idle + 1, 255) : 0;
    bodies[i] = b;
}
