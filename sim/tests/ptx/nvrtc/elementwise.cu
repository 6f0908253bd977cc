// Elementwise kernels: tails, vector accesses, fast and slow mathematics, half precisions, double precision.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void vector_add(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy4(float4 *y, const float4 *x, float a, int n4) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
        float4 u = x[i], v = y[i];
        y[i] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
    }
}

extern "C" __global__ void gelu(const float *x, float *by_tanh, float *by_erf, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    by_tanh[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
    by_erf[i] = 0.5f * v * (1 + erff(v * 0.70710678f));
}

extern "C" __global__ void swiglu_bf16(const __nv_bfloat162 *gate, const __nv_bfloat162 *up, __nv_bfloat162 *out, int n2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n2) return;
    float2 g = __bfloat1622float2(gate[i]), u = __bfloat1622float2(up[i]);
    g.x = g.x / (1 + __expf(-g.x)) * u.x;
    g.y = g.y / (1 + __expf(-g.y)) * u.y;
    out[i] = __float22bfloat162_rn(g);
}

extern "C" __global__ void half_arithmetic(const __half2 *a, const __half2 *b, __half2 *out, int n2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n2) return;
    __half2 x = __hfma2(a[i], b[i], a[i]), y = __hmax2(__hmul2(a[i], a[i]), __hadd2(b[i], b[i]));
    out[i] = __hsub2(x, y);
}

extern "C" __global__ void quantize(const float *x, __nv_fp8_storage_t *e4m3, __nv_fp8_storage_t *e5m2, signed char *s8,
                                    float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    e4m3[i] = __nv_cvt_float_to_fp8(x[i] * scale, __NV_SATFINITE, __NV_E4M3);
    e5m2[i] = __nv_cvt_float_to_fp8(x[i] * scale, __NV_SATFINITE, __NV_E5M2);
    s8[i] = (signed char)max(-127, min(127, __float2int_rn(x[i] * scale)));
}

extern "C" __global__ void doubles(const double *x, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    out[i] = sqrt(v * v + 1) / (2 + exp(-v)) + fma(v, v, rsqrt(v * v + 3)) + (double)(i % 7);
}

// Philox 4x32-10, as curand's and Triton's generators, and dropout by it.
extern "C" __global__ void dropout(const float *x, float *out, float p, unsigned seed, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i >= n) return;
    unsigned c0 = i, c1 = 0, c2 = 0, c3 = 0, k0 = seed, k1 = 0;
    for (int round = 0; round < 10; round++) {
        unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    unsigned r[4] = {c0, c1, c2, c3};
    for (int j = 0; j < 4 && 4 * i + j < n; j++)
        out[4 * i + j] = r[j] * 2.3283064e-10f < p ? 0 : x[4 * i + j] / (1 - p);
}

// Integer division and remainder by a run-time divisor, 64-bit too, and bits.
extern "C" __global__ void integers(const unsigned *x, unsigned long long *out, unsigned d, long long e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = x[i];
    long long w = (long long)v * v - 1000000007ll * i;
    out[4 * i] = v / d + ((unsigned long long)(v % d) << 32);
    out[4 * i + 1] = w / e;
    out[4 * i + 2] = w % e + __popcll(w) * 1000 + __clz(v) + __ffs(v);
    out[4 * i + 3] = __byte_perm(v, d, 0x5140) ^ __funnelshift_l(v, d, 7) ^ __brev(v) ^ __vadd4(v, d) ^ __dp4a(v, d, 5u);
}
