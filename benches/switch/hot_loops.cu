// The hot loops of allreduce through the switch, by hand in CUDA C++: what tests/sass.rs holds the SASS of our own
// kernels against. Written to be fast: 16-byte accesses, eight loads under way before the first store, 32-bit offsets
// from one base, nothing in the loop that is not needed. Counts are of 16-byte vectors. Barriers and the tail that
// is no whole vector are left out: they are not in the loop.
//
// nvcc -cubin -arch=sm_90a -O3 hot_loops.cu

struct Vector { unsigned w[4]; };

#define LD_REDUCE(NAME, FORM)                                                                                        \
    struct NAME {                                                                                                    \
        static __device__ __forceinline__ Vector ld_reduce(const char* p) {                                          \
            Vector v;                                                                                                \
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add" FORM " {%0,%1,%2,%3}, [%4];"                    \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");              \
            return v;                                                                                                \
        }                                                                                                            \
    }
LD_REDUCE(F32, ".v4.f32");
LD_REDUCE(BF16, ".acc::f32.v4.bf16x2");
LD_REDUCE(F16, ".acc::f32.v4.f16x2");

static __device__ __forceinline__ void st_multicast(char* p, Vector v) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};"
                 :: "l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}

// Grid-strided.
template <class T, int U>
static __device__ __forceinline__ void one_shot(const char* __restrict__ mc, char* __restrict__ out, unsigned n) {
    const unsigned threads = gridDim.x * blockDim.x;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t step = 16ull * threads;
    const char* from = mc + 16ull * i;
    char* to = out + 16ull * i;
    unsigned full = n > (U - 1) * threads ? n - (U - 1) * threads : 0;
#pragma unroll 1
    for (; i < full; i += U * threads, from += U * step, to += U * step) {
        Vector v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = T::ld_reduce(from + u * step);
#pragma unroll
        for (int u = 0; u < U; u++) *(uint4*)(to + u * step) = make_uint4(v[u].w[0], v[u].w[1], v[u].w[2], v[u].w[3]);
    }
#pragma unroll 1
    for (; i < n; i += threads, from += step, to += step) {
        Vector v = T::ld_reduce(from);
        *(uint4*)to = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    }
}
template <class T, int U>
static __device__ __forceinline__ void two_shot(char* __restrict__ mc, unsigned n) {
    const unsigned threads = gridDim.x * blockDim.x;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t step = 16ull * threads;
    char* from = mc + 16ull * i;
    unsigned full = n > (U - 1) * threads ? n - (U - 1) * threads : 0;
#pragma unroll 1
    for (; i < full; i += U * threads, from += U * step) {
        Vector v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = T::ld_reduce(from + u * step);
#pragma unroll
        for (int u = 0; u < U; u++) st_multicast(from + u * step, v[u]);
    }
#pragma unroll 1
    for (; i < n; i += threads, from += step) st_multicast(from, T::ld_reduce(from));
}
// Tiled: the U vectors of a thread lie a block apart.
template <class T, int U, int B>
static __device__ __forceinline__ void two_shot_tiled(char* __restrict__ mc, unsigned n) {
    unsigned i = blockIdx.x * (U * B) + threadIdx.x;
    char* p = mc + 16ull * i;
    const size_t step = 16ull * gridDim.x * (U * B);
    const char* end = mc + 16ull * n - 16ull * (U - 1) * B;
#pragma unroll 1
    for (; p < end; p += step) {
        Vector v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = T::ld_reduce(p + u * 16 * B);
#pragma unroll
        for (int u = 0; u < U; u++) st_multicast(p + u * 16 * B, v[u]);
    }
}
#define G(NAME, T, U) \
extern "C" __global__ void __launch_bounds__(512) one_shot_##NAME##_##U(const char* mc, char* out, unsigned n) { one_shot<T, U>(mc, out, n); } \
extern "C" __global__ void __launch_bounds__(512) two_shot_##NAME##_##U(char* mc, unsigned n) { two_shot<T, U>(mc, n); } \
extern "C" __global__ void __launch_bounds__(512) tiled_##NAME##_##U(char* mc, unsigned n) { two_shot_tiled<T, U, 512>(mc, n); }
G(f32, F32, 4)
G(bf16, BF16, 4)
G(f16, F16, 8)
