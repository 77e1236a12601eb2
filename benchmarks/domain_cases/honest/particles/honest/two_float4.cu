// A structure is loaded and stored as two float4, and the updates are explicit fused multiply-adds.
// baseline: particles/particles.cu
// @requires count > 0 && aligned(particles, 16) && gridDim.x * blockDim.x >= count && gridDim.y * gridDim.z * blockDim.y * blockDim.z == 1
// @launch fast grid=(ceil_div(count, 128)) block=(128) args=(particles, count, ex, ey, ez, drag, dt)
__global__ void fast(Particle* particles, int count, float ex, float ey, float ez, float drag, float dt)
{
    const int id = blockIdx.x * 128 + threadIdx.x;
    if (id >= count) return;
    float4* at = reinterpret_cast<float4*>(particles + id);
    float4 r = at[0], v = at[1];
    const float a = v.w / r.w;
    v.x = fmaf(dt, fmaf(a, ex, -(drag * v.x)), v.x);
    v.y = fmaf(dt, fmaf(a, ey, -(drag * v.y)), v.y);
    v.z = fmaf(dt, fmaf(a, ez, -(drag * v.z)), v.z);
    r.x = fmaf(dt, v.x, r.x);
    r.y = fmaf(dt, v.y, r.y);
    r.z = fmaf(dt, v.z, r.z);
    at[0] = r;
    at[1] = v;
}
