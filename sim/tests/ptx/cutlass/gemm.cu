// Hopper, out of CUTLASS' parts: C = A * B' of halves by clusters of two CTAs that share B's tiles (multicast), a producer
// warp, two consumer warpgroups with more registers, a pipeline of transaction barriers. A is M x K, B is N x K.
#include <cute/tensor.hpp>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/pipeline/sm90_pipeline.hpp>

using namespace cute;
using element = cutlass::half_t;

constexpr int BM = 128, BN = 32, BK = 64, STAGES = 3;
using Pipeline = cutlass::PipelineTmaAsync<STAGES>;
using Cluster = Shape<_2, _1, _1>;

struct alignas(64) Map {
    char opaque[128];
};

struct alignas(1024) Storage {
    element a[STAGES][BM * BK], b[STAGES][BN * BK];
    Pipeline::SharedStorage pipeline;
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384)
gemm_cluster(const __grid_constant__ Map A, const __grid_constant__ Map B, element *C, int N, int K) {
    extern __shared__ __align__(1024) unsigned char raw[];
    Storage &s = *reinterpret_cast<Storage *>(raw);
    int group = threadIdx.x / 128, rank = block_rank_in_cluster();
    int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN, steps = K / BK;

    Pipeline::Params params;
    params.transaction_bytes = (BM + BN) * BK * sizeof(element);
    params.role = group == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    params.is_leader = threadIdx.x % 128 == 0;
    params.num_consumers = 256;
    Pipeline pipeline(s.pipeline, params, Cluster{});
    cluster_arrive_relaxed();
    cluster_wait();

    if (group == 0) {
        cutlass::arch::warpgroup_reg_dealloc<40>();
        if (threadIdx.x < 32 && elect_one_sync()) {
            auto state = cutlass::make_producer_start_state<Pipeline>();
            for (int i = 0; i < steps; ++i, ++state) {
                pipeline.producer_acquire(state);
                auto *full = reinterpret_cast<uint64_t *>(pipeline.producer_get_barrier(state));
                auto first = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
                auto last = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
                SM90_TMA_LOAD_2D::copy(&A, full, first, s.a[state.index()], i * BK, m0);
                SM90_TMA_LOAD_MULTICAST_2D::copy(&B, full, 3, last, s.b[state.index()] + rank * BN / 2 * BK, i * BK, n0 + rank * BN / 2);
            }
            pipeline.producer_tail(state);
        }
        return;
    }

    cutlass::arch::warpgroup_reg_alloc<232>();
    auto mma = make_tiled_mma(SM90_64x32x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}, Layout<Shape<_2, _1, _1>>{});
    auto thread = mma.get_slice(threadIdx.x - 128);
    using Atom = GMMA::Layout_K_SW128_Atom<element>;
    auto a = make_tensor(make_smem_ptr(&s.a[0][0]), tile_to_shape(Atom{}, Shape<Int<BM>, Int<BK>, Int<STAGES>>{}));
    auto b = make_tensor(make_smem_ptr(&s.b[0][0]), tile_to_shape(Atom{}, Shape<Int<BN>, Int<BK>, Int<STAGES>>{}));
    auto fa = thread.make_fragment_A(thread.partition_A(a));
    auto fb = thread.make_fragment_B(thread.partition_B(b));
    auto acc = partition_fragment_C(mma, Shape<Int<BM>, Int<BN>>{});

    Pipeline::PipelineState state, release;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    for (int i = 0; i < steps; ++i, ++state) {
        pipeline.consumer_wait(state);
        warpgroup_fence_operand(acc);
        warpgroup_arrive();
        for (int k = 0; k < size<2>(fa); ++k) {
            gemm(mma, fa(_, _, k, state.index()), fb(_, _, k, state.index()), acc);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        // The multiplications of the step before are done: its stage can be filled again, in both CTAs.
        warpgroup_wait<1>();
        warpgroup_fence_operand(acc);
        if (i > 0) {
            pipeline.consumer_release(release);
            ++release;
        }
    }
    warpgroup_wait<0>();
    pipeline.consumer_release(release);

    auto c = make_tensor(make_gmem_ptr(C + (size_t)m0 * N + n0), make_shape(Int<BM>{}, Int<BN>{}), make_stride(N, _1{}));
    auto out = thread.partition_C(c);
    for (int i = 0; i < size(acc); ++i) out(i) = element(acc(i));
}
