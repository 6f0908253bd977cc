// Reductions, normalisations and scans: shuffles, votes, shared memory, atomics.
#include <cuda_bf16.h>

__device__ float warp_sum(float v) {
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

__device__ float warp_max(float v) {
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

template <float (*F)(float)> __device__ float block(float v, float identity) {
    __shared__ float part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    v = F(v);
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < (blockDim.x + 31) / 32 ? part[lane] : identity;
    return F(v);
}

extern "C" __global__ void sum(const float *x, float *out, int n) {
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
    s = block<warp_sum>(s, 0);
    if (threadIdx.x == 0) atomicAdd(out, s);
}

extern "C" __global__ void softmax(const float *x, float *out, int n) {
    x += (size_t)blockIdx.x * n, out += (size_t)blockIdx.x * n;
    float m = -__int_as_float(0x7f800000), s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = fmaxf(m, x[i]);
    m = block<warp_max>(m, -__int_as_float(0x7f800000));
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += __expf(x[i] - m);
    s = block<warp_sum>(s, 0);
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = __expf(x[i] - m) / s;
}

extern "C" __global__ void layernorm(const __nv_bfloat16 *x, const float *w, const float *b, __nv_bfloat16 *out, int n, float eps) {
    x += (size_t)blockIdx.x * n, out += (size_t)blockIdx.x * n;
    float s = 0, q = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += __bfloat162float(x[i]);
    float mean = block<warp_sum>(s, 0) / n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float d = __bfloat162float(x[i]) - mean;
        q += d * d;
    }
    float r = rsqrtf(block<warp_sum>(q, 0) / n + eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = __float2bfloat16((__bfloat162float(x[i]) - mean) * r * w[i] + b[i]);
}

// Inclusive scan of a CTA's elements by warps; the next CTA's part begins anew.
extern "C" __global__ void scan(const int *x, int *out, int n) {
    __shared__ int part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = i < n ? x[i] : 0;
    for (int o = 1; o < 32; o *= 2) {
        int u = __shfl_up_sync(~0u, v, o);
        if (lane >= o) v += u;
    }
    if (lane == 31) part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int p = lane < blockDim.x / 32 ? part[lane] : 0;
        for (int o = 1; o < 32; o *= 2) {
            int u = __shfl_up_sync(~0u, p, o);
            if (lane >= o) p += u;
        }
        part[lane] = p;
    }
    __syncthreads();
    if (warp) v += part[warp - 1];
    if (i < n) out[i] = v;
}

extern "C" __global__ void histogram(const unsigned char *x, unsigned *out, int n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}

// Elements above a threshold, packed; a warp takes its places by one atomic.
extern "C" __global__ void compact(const int *x, int *out, int *count, int threshold, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    bool keep = i < n && x[i] > threshold;
    unsigned votes = __ballot_sync(~0u, keep);
    int base;
    if (lane == 0) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(~0u, base, 0);
    if (keep) out[base + __popc(votes & ((1u << lane) - 1))] = x[i];
}

// Largest value and its first index, by a compare-and-swap loop on 64 bits.
extern "C" __global__ void argmax(const float *x, unsigned long long *best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned bits = __float_as_uint(x[i]);
    bits = bits >> 31 ? ~bits : bits | 1u << 31;
    unsigned long long key = (unsigned long long)bits << 32 | (unsigned)~i, old = *(volatile unsigned long long *)best;
    while (key > old) {
        unsigned long long seen = atomicCAS(best, old, key);
        if (seen == old) break;
        old = seen;
    }
}

extern "C" __global__ void transpose(const float *x, float *out, int rows, int columns) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < rows && c < columns) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < columns && c < rows) out[(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

// Sums of groups of equal keys within a warp, and integer reductions of the whole warp.
extern "C" __global__ void groups(const unsigned *key, const int *x, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned same = __match_any_sync(~0u, key[i]);
    int s = 0;
    for (unsigned m = same; m; m &= m - 1) s += __shfl_sync(same, x[i], __ffs(m) - 1);
    out[4 * i] = s;
    out[4 * i + 1] = __reduce_add_sync(~0u, x[i]);
    out[4 * i + 2] = __reduce_min_sync(~0u, x[i]);
    out[4 * i + 3] = __reduce_xor_sync(same, (unsigned)x[i]);
}
