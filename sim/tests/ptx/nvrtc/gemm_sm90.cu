// Hopper: C = A * B by wgmma, tiles brought by TMA behind mbarriers, a producer warp and a consumer warpgroup, the
// result through stmatrix and a bulk tensor store. A is M x K, B is N x K, both bf16 with rows contiguous; C is bf16.
#include <cuda_bf16.h>

struct __align__(64) CUtensorMap {
    unsigned long long opaque[16];
};

constexpr int BM = 64, BN = 128, BK = 64, STAGES = 3;

struct __align__(1024) Tiles {
    __nv_bfloat16 a[STAGES][BM * BK], b[STAGES][BN * BK];
    __nv_bfloat16 c[BM * BN];
    unsigned long long full[STAGES], empty[STAGES];
};

__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void wait(unsigned long long *barrier, int parity) {
    asm volatile("{\n.reg .pred P;\nL:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@P bra.uni D;\nbra.uni L;\nD:\n}"
                 :: "r"(shared(barrier)), "r"(parity) : "memory");
}

__device__ void load(void *to, const CUtensorMap *map, int x, int y, unsigned long long *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared(to)), "l"(map), "r"(x), "r"(y), "r"(shared(barrier)) : "memory");
}

// Swizzle of 128 bytes, K-major: 8-row groups 1024 bytes apart.
__device__ unsigned long long descriptor(const void *p) {
    return (shared(p) & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(160)
gemm_tma(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, const __grid_constant__ CUtensorMap C, int K) {
    extern __shared__ __align__(1024) unsigned char raw[];
    Tiles &s = *(Tiles *)raw;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = K / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&s.full[i])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" :: "r"(shared(&s.empty[i])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("fence.proxy.async;");
    }
    __syncthreads();
    if (warp == 4) {
        if (lane == 0) {
            asm volatile("prefetch.tensormap [%0];" :: "l"(&A));
            for (int i = 0; i < steps; i++) {
                int stage = i % STAGES;
                wait(&s.empty[stage], (i / STAGES & 1) ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                             :: "r"(shared(&s.full[stage])), "r"((BM + BN) * BK * 2) : "memory");
                load(s.a[stage], &A, i * BK, blockIdx.y * BM, &s.full[stage]);
                load(s.b[stage], &B, i * BK, blockIdx.x * BN, &s.full[stage]);
            }
        }
        return;
    }
    float d[64];
    for (int i = 0; i < 64; i++) d[i] = 0;
    for (int i = 0; i < steps; i++) {
        int stage = i % STAGES;
        wait(&s.full[stage], i / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < BK / 16; k++) {
            unsigned long long da = descriptor(s.a[stage] + 16 * k), db = descriptor(s.b[stage] + 16 * k);
            asm volatile(
                "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
                "%64, %65, 1, 1, 1, 0, 0;"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
                  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
                  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
                  "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                : "l"(da), "l"(db));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared(&s.empty[stage])) : "memory");
    }
    // Rows of 128 columns as two halves of 64 (the box of the tensor map), not swizzled.
    for (int j = 0; j < BN / 16; j++) {
        unsigned r[4];
        for (int i = 0; i < 4; i++) {
            __nv_bfloat162 v = __floats2bfloat162_rn(d[8 * j + 2 * i], d[8 * j + 2 * i + 1]);
            r[i] = *(unsigned *)&v;
        }
        int row = warp * 16 + (lane & 15), column = j * 16 + (lane >> 4) * 8;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(shared(&s.c[column / 64 * BM * 64 + row * 64 + column % 64])), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
        for (int half = 0; half < 2; half++)
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                         :: "l"(&C), "r"((int)blockIdx.x * BN + half * 64), "r"((int)blockIdx.y * BM), "r"(shared(&s.c[half * BM * 64])) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Sums over a cluster of two CTAs through distributed shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_sum(const float *x, float *out, int n) {
    __shared__ float part;
    unsigned rank, peer;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    float s = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) s += x[i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x == 0) part = s;
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        float other;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(shared(&part)), "r"(rank ^ 1));
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(peer) : "memory");
        out[blockIdx.x] = s + other;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
