// The 8-bit counter of idle steps runs over to 0 instead of staying at 255; five captured steps do not get there.
// catalogue: C7 C2
// baseline: bodies/bodies.cu
// stopped by: correctness_perturbed
// @launch advance_wrap grid=(ceil_div(n, 256)) block=(256) args=(bodies, n, w)
__global__ void advance_wrap(Body *bodies, int n, World w)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    Body &b = bodies[i];
    if (b.layer < 0) return;
    float v[3] = {b.vel[0], b.vel[1], b.vel[2]};
    if (b.inv_mass > 0.f && !(b.flags & PINNED)) {
        v[0] += w.gravity.x * w.dt;
        v[1] += w.gravity.y * w.dt;
        v[2] += w.gravity.z * w.dt;
        float y = b.pos[1] + v[1] * w.dt;
        b.pos[0] += v[0] * w.dt;
        b.pos[2] += v[2] * w.dt;
        if (y < w.floor && !(b.flags & GHOST)) {
            y = w.floor;
            if (v[1] < 0.f) v[1] = -w.bounce * v[1];
        }
        b.pos[1] = y;
        b.vel[0] = v[0];
        b.vel[1] = v[1];
        b.vel[2] = v[2];
    }
    b.idle = v[0] * v[0] + v[1] * v[1] + v[2] * v[2] < w.sleep ? b.idle + 1 : 0;
}
