// C = A * B of 8-bit floats: A is M x K of e4m3, B is N x K of e5m2.
extern "C" __global__ void gemm_fp8(const unsigned char *A, const unsigned char *B, float *C, int M, int N, int K) {
    int lane = threadIdx.x, g = lane >> 2, q = lane & 3, m0 = blockIdx.y * 16, n0 = blockIdx.x * 8;
    float d[4] = {};
    for (int k = 0; k < K; k += 32) {
        const unsigned char *pa = A + (size_t)(m0 + g) * K + k + 4 * q, *pb = B + (size_t)(n0 + g) * K + k + 4 * q;
        auto word = [](const unsigned char *p) { return *(const unsigned *)p; };
        asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(word(pa)), "r"(word(pa + 8 * K)), "r"(word(pa + 16)), "r"(word(pa + 8 * K + 16)), "r"(word(pb)), "r"(word(pb + 16)));
    }
    float *c = C + (size_t)(m0 + g) * N + n0 + 2 * q;
    c[0] = d[0], c[1] = d[1], c[8 * N] = d[2], c[8 * N + 1] = d[3];
}
