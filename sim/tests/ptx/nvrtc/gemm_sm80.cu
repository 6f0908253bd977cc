// C = A * B by warps of mma.sync: A is M x K with rows contiguous, B is N x K with rows contiguous (so K-major).
// M, N, K are multiples of the CTA's tile.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void ldmatrix4(unsigned r[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

__device__ void ldmatrix4_trans(unsigned r[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

__device__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared(to)), "l"(from));
}

#define MMA32(NAME, SHAPE, TYPES, NA)                                                                                  \
    __device__ void NAME(float d[4], const unsigned a[4], const unsigned b[2]) {                                       \
        asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPES ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "    \
                     "{%0,%1,%2,%3};"                                                                                  \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
    }
MMA32(mma_f16, "m16n8k16", "f16.f16", 4)
MMA32(mma_bf16, "m16n8k16", "bf16.bf16", 4)
MMA32(mma_tf32, "m16n8k8", "tf32.tf32", 4)

// Two stages of cp.async, ldmatrix of both operands from swizzled tiles: 64 x 64 x 32 a CTA of 4 warps (2 x 2).
template <void (*MMA)(float *, const unsigned *, const unsigned *)>
__device__ void gemm16(const unsigned short *A, const unsigned short *B, float *C, int M, int N, int K) {
    __shared__ __align__(128) unsigned short sa[2][64 * 32], sb[2][64 * 32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, wm = warp >> 1, wn = warp & 1;
    int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
    // 16-byte piece `c` of row `r`; four pieces a row, exchanged by the row's bits 1 and 2.
    auto place = [](int r, int c) { return r * 32 + (c ^ (r >> 1 & 3)) * 8; };
    auto load = [&](int stage, int k0) {
        for (int i = t; i < 64 * 4; i += 128) {
            int r = i >> 2, c = i & 3;
            copy16(&sa[stage][place(r, c)], A + (size_t)(m0 + r) * K + k0 + c * 8);
            copy16(&sb[stage][place(r, c)], B + (size_t)(n0 + r) * K + k0 + c * 8);
        }
        asm volatile("cp.async.commit_group;");
    };
    float acc[2][4][4] = {};
    load(0, 0);
    for (int k0 = 0, stage = 0; k0 < K; k0 += 32, stage ^= 1) {
        if (k0 + 32 < K) {
            load(stage ^ 1, k0 + 32);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_all;");
        }
        __syncthreads();
        for (int kk = 0; kk < 2; kk++) {
            unsigned a[2][4], b[4][2];
            for (int i = 0; i < 2; i++) ldmatrix4(a[i], shared(&sa[stage][place(wm * 32 + i * 16 + (lane & 15), kk * 2 + (lane >> 4))]));
            for (int j = 0; j < 2; j++) {
                unsigned r[4];
                ldmatrix4(r, shared(&sb[stage][place(wn * 32 + j * 16 + (lane & 7) + (lane >> 4) * 8, kk * 2 + (lane >> 3 & 1))]));
                b[2 * j][0] = r[0], b[2 * j][1] = r[1], b[2 * j + 1][0] = r[2], b[2 * j + 1][1] = r[3];
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) MMA(acc[i][j], a[i], b[j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            float *c = C + (size_t)(m0 + wm * 32 + i * 16 + lane / 4) * N + n0 + wn * 32 + j * 8 + lane % 4 * 2;
            *(float2 *)c = make_float2(acc[i][j][0], acc[i][j][1]);
            *(float2 *)(c + 8 * N) = make_float2(acc[i][j][2], acc[i][j][3]);
        }
}

extern "C" __global__ void gemm_f16(const unsigned short *A, const unsigned short *B, float *C, int M, int N, int K) {
    gemm16<mma_f16>(A, B, C, M, N, K);
}

extern "C" __global__ void gemm_bf16(const unsigned short *A, const unsigned short *B, float *C, int M, int N, int K) {
    gemm16<mma_bf16>(A, B, C, M, N, K);
}

// One warp a 16 x 8 tile, fragments straight from global memory.
extern "C" __global__ void gemm_tf32(const float *A, const float *B, float *C, int M, int N, int K) {
    int lane = threadIdx.x, g = lane >> 2, q = lane & 3, m0 = blockIdx.y * 16, n0 = blockIdx.x * 8;
    float acc[4] = {};
    auto tf32 = [](float x) {
        unsigned r;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
        return r;
    };
    for (int k = 0; k < K; k += 8) {
        const float *a = A + (size_t)(m0 + g) * K + k + q, *b = B + (size_t)(n0 + g) * K + k + q;
        unsigned fa[4] = {tf32(a[0]), tf32(a[8 * K]), tf32(a[4]), tf32(a[8 * K + 4])}, fb[2] = {tf32(b[0]), tf32(b[4])};
        mma_tf32(acc, fa, fb);
    }
    float *c = C + (size_t)(m0 + g) * N + n0 + 2 * q;
    c[0] = acc[0], c[1] = acc[1], c[8 * N] = acc[2], c[8 * N + 1] = acc[3];
}

extern "C" __global__ void gemm_s8(const signed char *A, const signed char *B, int *C, int M, int N, int K) {
    int lane = threadIdx.x, g = lane >> 2, q = lane & 3, m0 = blockIdx.y * 16, n0 = blockIdx.x * 8;
    int d[4] = {};
    for (int k = 0; k < K; k += 32) {
        const signed char *pa = A + (size_t)(m0 + g) * K + k + 4 * q, *pb = B + (size_t)(n0 + g) * K + k + 4 * q;
        auto word = [](const signed char *p) { return *(const unsigned *)p; };
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                     : "r"(word(pa)), "r"(word(pa + 8 * K)), "r"(word(pa + 16)), "r"(word(pa + 8 * K + 16)), "r"(word(pb)), "r"(word(pb + 16)));
    }
    int *c = C + (size_t)(m0 + g) * N + n0 + 2 * q;
    c[0] = d[0], c[1] = d[1], c[8 * N] = d[2], c[8 * N + 1] = d[3];
}

extern "C" __global__ void gemm_f64(const double *A, const double *B, double *C, int M, int N, int K) {
    int lane = threadIdx.x, g = lane >> 2, q = lane & 3, m0 = blockIdx.y * 8, n0 = blockIdx.x * 8;
    double d[2] = {};
    for (int k = 0; k < K; k += 4)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+d"(d[0]), "+d"(d[1]) : "d"(A[(size_t)(m0 + g) * K + k + q]), "d"(B[(size_t)(n0 + g) * K + k + q]));
    double *c = C + (size_t)(m0 + g) * N + n0 + 2 * q;
    c[0] = d[0], c[1] = d[1];
}

// B with K rows of N contiguous (N-major): ldmatrix.trans; half accumulators.
extern "C" __global__ void gemm_f16_nn(const __half *A, const __half *B, __half *C, int M, int N, int K) {
    __shared__ __align__(128) __half sa[16 * 24], sb[16 * 24];
    int lane = threadIdx.x, m0 = blockIdx.y * 16, n0 = blockIdx.x * 16;
    unsigned d[2][2] = {};
    for (int k = 0; k < K; k += 16) {
        int r = lane >> 1, c = lane & 1;
        *(uint4 *)&sa[r * 24 + c * 8] = *(const uint4 *)&A[(size_t)(m0 + r) * K + k + c * 8];
        *(uint4 *)&sb[r * 24 + c * 8] = *(const uint4 *)&B[(size_t)(k + r) * N + n0 + c * 8];
        __syncwarp();
        unsigned a[4], b[4];
        ldmatrix4(a, shared(&sa[(lane & 15) * 24 + (lane >> 4) * 8]));
        ldmatrix4_trans(b, shared(&sb[(lane & 15) * 24 + (lane >> 4) * 8]));
        for (int j = 0; j < 2; j++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                         : "+r"(d[j][0]), "+r"(d[j][1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]));
        __syncwarp();
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++) *(unsigned *)&C[(size_t)(m0 + lane / 4 + 8 * i) * N + n0 + j * 8 + lane % 4 * 2] = d[j][i];
}

// The fragments of the wmma interface.
extern "C" __global__ void gemm_wmma(const __half *A, const __half *B, float *C, int M, int N, int K) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    fragment<matrix_b, 16, 16, 16, __half, col_major> b;
    fragment<accumulator, 16, 16, 16, float> c;
    fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += 16) {
        load_matrix_sync(a, A + (size_t)blockIdx.y * 16 * K + k, K);
        load_matrix_sync(b, B + (size_t)blockIdx.x * 16 * K + k, K);
        mma_sync(c, a, b, c);
    }
    for (int i = 0; i < c.num_elements; i++) c.x[i] *= 0.5f;
    store_matrix_sync(C + (size_t)blockIdx.y * 16 * N + blockIdx.x * 16, c, N, mem_row_major);
}
