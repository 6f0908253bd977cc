"""Kernels as people write them for Triton; `make.py` compiles them."""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def softmax(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, i < n, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), i < n)


@triton.jit
def layernorm(x, w, b, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, i < n, 0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    d = tl.where(i < n, v - mean, 0)
    r = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    y = d * r * tl.load(w + i, i < n) + tl.load(b + i, i < n)
    tl.store(out + row * n + i, y.to(out.dtype.element_ty), i < n)


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    # tanh(u) by an exponential.
    u = 0.7978845608 * (v + 0.044715 * v * v * v)
    t = 1 - 2 / (tl.exp(2 * u) + 1)
    tl.store(out + i, 0.5 * v * (1 + t), i < n)


@triton.jit
def dropout(x, out, p, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, v / (1 - p), 0.0), i < n)


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, 0)
    h = tl.histogram(v, BINS, mask=i < n)
    tl.atomic_add(out + tl.arange(0, BINS), h)


@triton.jit
def scatter_max(x, key, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(key + i, i < n, 0)
    tl.atomic_max(out + k, tl.load(x + i, i < n), i < n)


@triton.jit
def transpose(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(x + r[:, None] * columns + c[None, :], (r[:, None] < rows) & (c[None, :] < columns))
    # `out` is written with its own rows contiguous.
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(t), (c[:, None] < columns) & (r[None, :] < rows))


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.cumsum(tl.load(x + row + i, i < n, 0), 0), i < n)


@triton.jit
def argmax(x, value, index, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, i < n, -float("inf"))
    m, at = tl.max(v, 0, return_indices=True)
    tl.store(value + row, m)
    tl.store(index + row, at)


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def doubles(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, i < n, 0.0)
    tl.store(out + i, tl.sqrt(v * v + 1) / (2 + v * v) + tl.fma(v, v, 0.25), i < n)


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    pa = a + m[:, None] * sam + k[None, :] * sak
    pb = b + k[:, None] * sbk + n[None, :] * sbn
    acc = tl.zeros((BM, BN), ACC)
    for k0 in range(0, K, BK):
        ta = tl.load(pa, (m[:, None] < M) & (k[None, :] < K - k0), 0.0)
        tb = tl.load(pb, (n[None, :] < N) & (k[:, None] < K - k0), 0.0)
        acc = tl.dot(ta, tb, acc, input_precision=PRECISION, out_dtype=ACC)
        pa += BK * sak
        pb += BK * sbk
    tl.store(c + m[:, None] * scm + n[None, :], acc.to(c.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """With tensor descriptors made by the host: A is M x K, B is N x K."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(c.dtype))


@triton.jit
def matmul_descriptor(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """With tensor descriptors made by the kernel."""
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([m, k]), db.load([n, k]).T, acc)
    dc.store([m, n], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Causal, one head a program on axis 1: softmax of Q K^T in one pass, in base 2."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    head = tl.program_id(1) * n * D
    tq = tl.load(q + head + m[:, None] * D + d[None, :], m[:, None] < n, 0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        j = start + tl.arange(0, BN)
        tk = tl.load(k + head + j[None, :] * D + d[:, None], j[None, :] < n, 0)
        tv = tl.load(v + head + j[:, None] * D + d[None, :], j[:, None] < n, 0)
        s = tl.where((m[:, None] >= j[None, :]) & (j[None, :] < n), tl.dot(tq, tk) * (scale * 1.44269504), -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None]
        acc = tl.dot(p.to(tv.dtype), tv, acc)
        top = higher
    tl.store(out + head + m[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty), m[:, None] < n)
