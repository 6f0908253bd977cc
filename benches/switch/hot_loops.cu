// The hot loops of allreduce through the switch, by hand in CUDA C++: what tests/sass.rs holds the SASS of our own
// kernels against. As an expert writes them: 16-byte accesses, all loads of a round before its first store, pointers
// that only move on, a 32-bit count of vectors, one comparison a round. Barriers are left out, and so is the tail that
// is no whole vector: neither is in the loop.
//
//     nvcc -cubin -arch=sm_90a -O3 hot_loops.cu
//
// Each comes in two forms. `strided` is the order of our `partition(x, threads())`: vectors of a thread lie a whole grid
// apart, so a round touches one contiguous stretch of memory, and the distance is known at launch only. `tiled` has
// the vectors of a round one CTA's width apart, which makes the distances immediates of the instructions.

using uint64 = unsigned long long;

struct Vector {
    unsigned w[4];
};

#define LD_REDUCE(NAME, FORM)                                                                        \
    struct NAME {                                                                                    \
        static __device__ __forceinline__ Vector ld_reduce(const char* p) {                          \
            Vector v;                                                                                \
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add" FORM " {%0, %1, %2, %3}, [%4];" \
                         : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])                    \
                         : "l"(p)                                                                    \
                         : "memory");                                                                \
            return v;                                                                                \
        }                                                                                            \
    }
LD_REDUCE(F32, ".v4.f32");
LD_REDUCE(BF16, ".acc::f32.v4.bf16x2");
LD_REDUCE(F16, ".acc::f32.v4.f16x2");

// Where results go: this GPU's memory, or all members' through the switch.
struct Here {
    static __device__ __forceinline__ void store(char* p, Vector v) {
        *reinterpret_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
    }
};
struct Everywhere {
    static __device__ __forceinline__ void store(char* p, Vector v) {
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]),
                     "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
                     : "memory");
    }
};

template <class T, class To, int U>
static __device__ __forceinline__ void round(const char* from, char* to, uint64 apart) {
    Vector v[U];
#pragma unroll
    for (int u = 0; u < U; u++) v[u] = T::ld_reduce(from + u * apart);
#pragma unroll
    for (int u = 0; u < U; u++) To::store(to + u * apart, v[u]);
}

// `n` vectors; `from` and `to` are the same where the reduction is in place.
template <class T, class To, int U>
static __device__ __forceinline__ void strided(const char* from, char* to, unsigned n) {
    const unsigned threads = gridDim.x * blockDim.x;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64 apart = 16ull * threads;
    from += 16ull * i;
    to += 16ull * i;
    const unsigned whole = n > (U - 1) * threads ? n - (U - 1) * threads : 0;
#pragma unroll 1
    for (; i < whole; i += U * threads, from += U * apart, to += U * apart) round<T, To, U>(from, to, apart);
#pragma unroll 1
    for (; i < n; i += threads, from += apart, to += apart) round<T, To, 1>(from, to, 0);
}

template <class T, class To, int U>
static __device__ __forceinline__ void tiled(const char* from, char* to, unsigned n) {
    constexpr unsigned THREADS = 512;
    unsigned i = blockIdx.x * (U * THREADS) + threadIdx.x;
    const unsigned step = gridDim.x * (U * THREADS);
    from += 16ull * i;
    to += 16ull * i;
    const unsigned whole = n > (U - 1) * THREADS ? n - (U - 1) * THREADS : 0;
#pragma unroll 1
    for (; i < whole; i += step, from += 16ull * step, to += 16ull * step)
        round<T, To, U>(from, to, 16 * THREADS);
#pragma unroll 1
    for (; i < n; i += THREADS, from += 16 * THREADS, to += 16 * THREADS) round<T, To, 1>(from, to, 0);
}

#define KERNELS(FORM, TYPE, U)                                                                         \
    extern "C" __global__ void __launch_bounds__(512)                                                  \
        FORM##_one_shot_##TYPE##_##U(const char* mc, char* out, unsigned n) {                          \
        FORM<TYPE, Here, U>(mc, out, n);                                                               \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(512)                                                  \
        FORM##_two_shot_##TYPE##_##U(const char* mc, char* out_mc, unsigned n) {                       \
        FORM<TYPE, Everywhere, U>(mc, out_mc, n);                                                      \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(512) FORM##_in_place_##TYPE##_##U(char* mc, unsigned n) { \
        FORM<TYPE, Everywhere, U>(mc, mc, n);                                                          \
    }
#define ALL(TYPE)             \
    KERNELS(strided, TYPE, 4) \
    KERNELS(strided, TYPE, 8) \
    KERNELS(tiled, TYPE, 4)   \
    KERNELS(tiled, TYPE, 8)
ALL(F32)
ALL(BF16)
ALL(F16)
