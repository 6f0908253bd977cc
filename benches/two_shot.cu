// The two-shot allreduce of examples/allreduce_two_shot.weft by hand, for f32 and N = 1048576: the same barriers,
// widths, bounds and loads in flight. No headers, so that NVRTC has as little to do as can be.

constexpr long N = 1048576;
constexpr int THREADS = 512, LINE = 32;

__device__ void barrier(unsigned* own, unsigned* everywhere, int n_pes) {
    __syncthreads();
    if (threadIdx.x == 0) {
        own += blockIdx.x * LINE;
        everywhere += blockIdx.x * LINE;
        asm volatile("multimem.red.release.sys.global.add.u32 [%0], %1;" ::"l"(everywhere), "r"(1u) : "memory");
        unsigned epoch = own[1] + 1, arrived;
        do {
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(arrived) : "l"(own) : "memory");
        } while (int(arrived - epoch * n_pes) < 0);
        own[1] = epoch;
    }
    __syncthreads();
}

struct Vector {
    float a, b, c, d;
};

__device__ Vector load(float* x) {
    Vector v;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.a), "=f"(v.b), "=f"(v.c), "=f"(v.d)
                 : "l"(x)
                 : "memory");
    return v;
}

__device__ void store(float* x, Vector v) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(x), "f"(v.a), "f"(v.b),
                 "f"(v.c), "f"(v.d)
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    allreduce_two_shot(float* x, unsigned* own, unsigned* everywhere, int my_pe, int n_pes) {
    long part = (N + 4 * n_pes - 1) / (4 * n_pes) * 4;
    long begin = part * my_pe, end = begin + part < N ? begin + part : N;
    long step = 4L * THREADS * gridDim.x;

    barrier(own, everywhere, n_pes);
    long i = begin + 4L * (blockIdx.x * THREADS + threadIdx.x);
    for (; i + 3 * step < end; i += 4 * step) {
        Vector v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = load(x + i + k * step);
#pragma unroll
        for (int k = 0; k < 4; k++) store(x + i + k * step, v[k]);
    }
    for (; i < end; i += step) store(x + i, load(x + i));
    barrier(own, everywhere, n_pes);
}
