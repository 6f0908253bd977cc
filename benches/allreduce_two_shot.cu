// The kernel of examples/allreduce_two_shot.weft for f32, by hand in CUDA C++: for comparing compile times.
extern "C" __global__ void __launch_bounds__(512) two_shot(
    float* mc, unsigned* sync, unsigned* sync_mc, int me, int n_pes, long long n)
{
    auto barrier = [&] {
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned* line = sync + 32 * blockIdx.x;
            unsigned epoch = line[1] + 1, seen;
            asm volatile("multimem.red.release.sys.global.add.u32 [%0], 1;" ::"l"(sync_mc + 32 * blockIdx.x) : "memory");
            do {
                asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(line) : "memory");
            } while ((int)(seen - epoch * n_pes) < 0);
            line[1] = epoch;
        }
        __syncthreads();
    };
    auto move = [](float* p) {
        float a, b, c, d;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                     : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(p) : "memory");
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};"
                     ::"l"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
    };
    long long shard = (n + 4 * n_pes - 1) / (4 * n_pes) * 4, first = shard * me;
    long long end = first + shard < n ? first + shard : n;
    barrier();
#pragma unroll 4
    for (long long i = first + 4ll * (blockIdx.x * 512ll + threadIdx.x); i < end; i += 4ll * 512 * gridDim.x) {
        if (i + 4 <= end) {
            move(mc + i);
        } else {
            for (long long j = i; j < end; j++) {
                float a;
                asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(a) : "l"(mc + j) : "memory");
                asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(mc + j), "f"(a) : "memory");
            }
        }
    }
    barrier();
}
