//! Kernels that NVRTC compiled (`ptx/nvrtc`), held against float64.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use float8::{F8E4M3, F8E5M2};
use gpu::{Gpu, Scalar, close, data, integers, module, product};
use half::{bf16, f16};
use weft_sim::{Arg, Module, Swizzle, TensorType};

const ELEMENTWISE: [&str; 2] =
    [include_str!("ptx/nvrtc/elementwise.sm_80.ptx"), include_str!("ptx/nvrtc/elementwise.sm_90.ptx")];
const REDUCE: [&str; 2] =
    [include_str!("ptx/nvrtc/reduce.sm_80.ptx"), include_str!("ptx/nvrtc/reduce.sm_90.ptx")];

/// Runs for each target and a few schedules.
fn each(texts: &[&str], f: impl Fn(&Module, &mut Gpu)) {
    for text in texts {
        let module = module(text);
        for seed in 0..3 {
            f(&module, &mut Gpu::new(seed));
        }
    }
}

fn line(ctas: u32, threads: u32) -> gpu::Dims {
    ([ctas, 1, 1], [threads, 1, 1], 0)
}

fn ptr(addr: u64) -> Arg {
    Arg::U64(addr)
}

fn int(n: usize) -> Arg {
    Arg::I32(n as i32)
}

fn values<T: Scalar>(list: &[T]) -> Vec<f64> {
    list.iter().map(|v| v.value()).collect()
}

#[test]
fn vector_add_and_saxpy() {
    each(&ELEMENTWISE, |m, g| {
        let n = 1003;
        let (a, b) = (data::<f32>(n, 1, 20), data::<f32>(n, 2, 20));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<f32>(n));
        g.run(m, "vector_add", line(4, 256), vec![ptr(pa), ptr(pb), ptr(out), int(n)]);
        let want: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(a + b)).collect();
        close("vector_add", &g.get::<f32>(out, n), &want, 0.0, 0.0);
        let n4 = 250;
        g.run(m, "saxpy4", line(2, 64), vec![ptr(pb), ptr(pa), Arg::F32(1.5), int(n4)]);
        let want: Vec<f64> =
            (0..n).map(|i| f64::from(if i < 4 * n4 { a[i].mul_add(1.5, b[i]) } else { b[i] })).collect();
        close("saxpy4", &g.get::<f32>(pb, n), &want, 0.0, 0.0);
    });
}

/// erf(x) by its series, which converges quickly enough up to 4.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn gelu_and_swiglu() {
    each(&ELEMENTWISE, |m, g| {
        let n = 777;
        let x: Vec<f32> = data::<f32>(n, 3, 22).iter().map(|v| v * 4.0).collect();
        let (px, tanh, by_erf) = (g.put(&x), g.room::<f32>(n), g.room::<f32>(n));
        g.run(m, "gelu", line(4, 200), vec![ptr(px), ptr(tanh), ptr(by_erf), int(n)]);
        let u = |v: f64| 0.7978845608 * (v + 0.044715 * v * v * v);
        let want: Vec<f64> = values(&x).iter().map(|&v| 0.5 * v * (1.0 + u(v).tanh())).collect();
        close("gelu by tanh", &g.get::<f32>(tanh, n), &want, 2e-6, 1e-6);
        let want: Vec<f64> = values(&x).iter().map(|&v| 0.5 * v * (1.0 + erf(v * 0.5_f64.sqrt()))).collect();
        close("gelu by erf", &g.get::<f32>(by_erf, n), &want, 2e-6, 1e-6);

        let (a, b) = (data::<bf16>(n + 1, 4, 6), data::<bf16>(n + 1, 5, 6));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<bf16>(n + 1));
        g.run(m, "swiglu_bf16", line(2, 256), vec![ptr(pa), ptr(pb), ptr(out), int(n.div_ceil(2))]);
        let silu = |v: f64| v / (1.0 + (-v).exp());
        let want: Vec<f64> = values(&a).iter().zip(values(&b)).map(|(&a, b)| silu(a) * b).collect();
        close("swiglu", &g.get::<bf16>(out, n + 1), &want, 1e-30, 1.0 / 250.0);
    });
}

#[test]
fn halves() {
    each(&ELEMENTWISE, |m, g| {
        let n = 514;
        let (a, b) = (data::<f16>(n, 6, 9), data::<f16>(n, 7, 9));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<f16>(n));
        g.run(m, "half_arithmetic", line(3, 96), vec![ptr(pa), ptr(pb), ptr(out), int(n / 2)]);
        let r = |x: f64| f16::from_f64(x).to_f64();
        let want: Vec<f64> = values(&a)
            .iter()
            .zip(values(&b))
            .map(|(&a, b)| r(r(a * b + a) - r(a * a).max(r(b + b))))
            .collect();
        close("half_arithmetic", &g.get::<f16>(out, n), &want, 0.0, 0.0);
    });
}

#[test]
fn quantization() {
    each(&ELEMENTWISE, |m, g| {
        let n = 999;
        let x: Vec<f32> = data::<f32>(n, 8, 20).iter().map(|v| v * v * v * 700.0).collect();
        let px = g.put(&x);
        let (e4m3, e5m2, s8) = (g.room::<F8E4M3>(n), g.room::<F8E5M2>(n), g.room::<i8>(n));
        let args = vec![ptr(px), ptr(e4m3), ptr(e5m2), ptr(s8), Arg::F32(0.75), int(n)];
        g.run(m, "quantize", line(4, 256), args);
        let scaled: Vec<f32> = x.iter().map(|v| v * 0.75).collect();
        for (i, &v) in scaled.iter().enumerate() {
            assert_eq!(g.get::<i8>(s8, n)[i], v.round_ties_even().clamp(-127.0, 127.0) as i8);
        }
        let nearest = |v: f32, all: &[f64]| {
            let closer =
                |a: &&f64, b: &&f64| (**a - f64::from(v)).abs().total_cmp(&(**b - f64::from(v)).abs());
            *all.iter().min_by(closer).unwrap()
        };
        let finite = |f: &dyn Fn(u8) -> f64| (0..=255).map(f).filter(|v| v.is_finite()).collect::<Vec<_>>();
        let all4 = finite(&|b| F8E4M3::from_bits(b).to_f64());
        let all5 = finite(&|b| F8E5M2::from_bits(b).to_f64());
        for (i, &v) in scaled.iter().enumerate().step_by(7) {
            let d4 = (g.get::<F8E4M3>(e4m3, n)[i].to_f64() - f64::from(v)).abs();
            assert_eq!(d4, (nearest(v, &all4) - f64::from(v)).abs(), "e4m3 of {v}");
            let d5 = (g.get::<F8E5M2>(e5m2, n)[i].to_f64() - f64::from(v)).abs();
            assert_eq!(d5, (nearest(v, &all5) - f64::from(v)).abs(), "e5m2 of {v}");
        }
    });
}

#[test]
fn double_precision() {
    each(&ELEMENTWISE, |m, g| {
        let n = 300;
        let x: Vec<f64> = data::<f64>(n, 9, 40).iter().map(|v| v * 5.0).collect();
        let (px, out) = (g.put(&x), g.room::<f64>(n));
        g.run(m, "doubles", line(3, 128), vec![ptr(px), ptr(out), int(n)]);
        let f = |(i, &v): (usize, &f64)| {
            (v * v + 1.0).sqrt() / (2.0 + (-v).exp()) + v * v + 1.0 / (v * v + 3.0).sqrt() + (i % 7) as f64
        };
        let want: Vec<f64> = x.iter().enumerate().map(f).collect();
        close("doubles", &g.get::<f64>(out, n), &want, 0.0, 1e-15);
    });
}

/// Philox 4x32-10 of counter `i` and this seed.
fn philox(i: u32, seed: u32) -> [u32; 4] {
    let (mut c, mut k) = ([i, 0, 0, 0], [seed, 0]);
    for _ in 0..10 {
        let (p, q) = (0xd251_1f53_u64 * u64::from(c[0]), 0xcd9e_8d57_u64 * u64::from(c[2]));
        c = [(q >> 32) as u32 ^ c[1] ^ k[0], q as u32, (p >> 32) as u32 ^ c[3] ^ k[1], p as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

#[test]
fn dropout() {
    // The known answer of the generator's authors for counter and key zero.
    assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    each(&ELEMENTWISE, |m, g| {
        let (n, p) = (1001, 0.3_f32);
        let x = data::<f32>(n, 10, 20);
        let (px, out) = (g.put(&x), g.room::<f32>(n));
        g.run(m, "dropout", line(2, 128), vec![ptr(px), ptr(out), Arg::F32(p), Arg::U32(77), int(n)]);
        let uniform = |i: usize| philox(i as u32 / 4, 77)[i % 4] as f32 * 2.3283064e-10;
        let want: Vec<f64> =
            (0..n).map(|i| if uniform(i) < p { 0.0 } else { f64::from(x[i] / (1.0 - p)) }).collect();
        close("dropout", &g.get::<f32>(out, n), &want, 0.0, 0.0);
        let dropped = want.iter().filter(|v| **v == 0.0).count();
        assert!((250..350).contains(&dropped), "{dropped}");
    });
}

#[test]
fn integer_division_and_bits() {
    each(&ELEMENTWISE, |m, g| {
        let n = 500;
        let x: Vec<u32> = integers(n, 11, 0, u32::MAX.into());
        let (px, out, d, e) = (g.put(&x), g.room::<u64>(4 * n), 0x0301_0207_u32, -123_456_789_i64);
        g.run(m, "integers", line(2, 256), vec![ptr(px), ptr(out), Arg::U32(d), Arg::I64(e), int(n)]);
        let got = g.get::<u64>(out, 4 * n);
        for (i, &v) in x.iter().enumerate() {
            let w = (i64::from(v).wrapping_mul(i64::from(v))).wrapping_sub(1_000_000_007 * i as i64);
            let bytes = |v: u32| v.to_le_bytes().map(u32::from);
            let (vb, db) = (bytes(v), bytes(d));
            let add4 = (0..4).fold(0, |r, j| r | ((vb[j] + db[j]) & 0xff) << (8 * j));
            let dot = (0..4).fold(5_u32, |r, j| r.wrapping_add(vb[j] * db[j]));
            let prmt = u32::from_le_bytes([vb[0] as u8, db[0] as u8, vb[1] as u8, db[1] as u8]);
            let funnel = d << 7 | v >> 25;
            let want = [
                u64::from(v / d) | u64::from(v % d) << 32,
                (w / e) as u64,
                ((w % e)
                    + i64::from(w.count_ones()) * 1000
                    + i64::from(v.leading_zeros())
                    + if v == 0 { 0 } else { i64::from(v.trailing_zeros()) + 1 }) as u64,
                u64::from(prmt ^ funnel ^ v.reverse_bits() ^ add4 ^ dot),
            ];
            assert_eq!(got[4 * i..4 * i + 4], want, "{i}: {v:#x}");
        }
    });
}

#[test]
fn sums() {
    each(&REDUCE, |m, g| {
        let n = 5003;
        let x = data::<f32>(n, 12, 10);
        let (px, out) = (g.put(&x), g.put(&[0_f32]));
        g.run(m, "sum", line(3, 288), vec![ptr(px), ptr(out), int(n)]);
        // The terms have 10 bits: any order gives the same.
        close("sum", &g.get::<f32>(out, 1), &[values(&x).iter().sum()], 0.0, 0.0);
    });
}

#[test]
fn softmax() {
    each(&REDUCE, |m, g| {
        let (rows, n) = (5, 333);
        let x: Vec<f32> = data::<f32>(rows * n, 13, 20).iter().map(|v| v * 8.0).collect();
        let (px, out) = (g.put(&x), g.room::<f32>(rows * n));
        g.run(m, "softmax", line(rows as u32, 128), vec![ptr(px), ptr(out), int(n)]);
        let want: Vec<f64> = x.chunks(n).flat_map(|row| softmax_of(&values(row))).collect();
        close("softmax", &g.get::<f32>(out, rows * n), &want, 1e-12, 1e-5);
    });
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let top = row.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let e: Vec<f64> = row.iter().map(|v| (v - top).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

#[test]
fn layernorm() {
    each(&REDUCE, |m, g| {
        let (rows, n, eps) = (4, 250, 1e-5);
        let x = data::<bf16>(rows * n, 14, 6);
        let (w, b) = (data::<f32>(n, 15, 8), data::<f32>(n, 16, 8));
        let (px, pw, pb, out) = (g.put(&x), g.put(&w), g.put(&b), g.room::<bf16>(rows * n));
        let args = vec![ptr(px), ptr(pw), ptr(pb), ptr(out), int(n), Arg::F32(eps)];
        g.run(m, "layernorm", line(rows as u32, 96), args);
        let norm = |row: &[bf16]| {
            let row = values(row);
            let mean = row.iter().sum::<f64>() / n as f64;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            let r = 1.0 / (var + f64::from(eps)).sqrt();
            (0..n).map(|i| (row[i] - mean) * r * f64::from(w[i]) + f64::from(b[i])).collect::<Vec<_>>()
        };
        let want: Vec<f64> = x.chunks(n).flat_map(norm).collect();
        close("layernorm", &g.get::<bf16>(out, rows * n), &want, 1e-5, 1.0 / 250.0);
    });
}

#[test]
fn scans_histograms_compaction() {
    each(&REDUCE, |m, g| {
        let n = 1500;
        let x: Vec<i32> = integers(n, 17, -50, 50);
        let (px, out) = (g.put(&x), g.room::<i32>(n));
        g.run(m, "scan", line(3, 512), vec![ptr(px), ptr(out), int(n)]);
        let scan = |c: &[i32]| {
            c.iter()
                .scan(0, |s, v| {
                    *s += v;
                    Some(*s)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(g.get::<i32>(out, n), x.chunks(512).flat_map(scan).collect::<Vec<_>>());

        let bytes: Vec<u8> = integers(n, 18, 0, 255);
        let (pb, bins) = (g.put(&bytes), g.put(&[0_u32; 256]));
        g.run(m, "histogram", line(2, 320), vec![ptr(pb), ptr(bins), int(n)]);
        let mut want = vec![0; 256];
        bytes.iter().for_each(|&b| want[b as usize] += 1);
        assert_eq!(g.get::<u32>(bins, 256), want);

        let (to, count) = (g.room::<i32>(n), g.put(&[0_i32]));
        let args = vec![ptr(px), ptr(to), ptr(count), Arg::I32(10), int(n)];
        g.run(m, "compact", line(6, 256), args);
        let mut want: Vec<i32> = x.iter().copied().filter(|v| *v > 10).collect();
        let mut got = g.get::<i32>(to, want.len());
        assert_eq!(g.get::<i32>(count, 1), [want.len() as i32]);
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want);
    });
}

#[test]
fn argmax_transpose_groups() {
    each(&REDUCE, |m, g| {
        let n = 1000;
        let mut x = data::<f32>(n, 19, 12);
        (x[300], x[700]) = (2.5, 2.5);
        let (px, best) = (g.put(&x), g.put(&[0_u64]));
        g.run(m, "argmax", line(4, 256), vec![ptr(px), ptr(best), int(n)]);
        assert_eq!(
            g.get::<u64>(best, 1)[0],
            u64::from(2.5_f32.to_bits() | 1 << 31) << 32 | u64::from(!300_u32)
        );

        let (rows, columns) = (50, 70);
        let x = data::<f32>(rows * columns, 20, 20);
        let (px, out) = (g.put(&x), g.room::<f32>(rows * columns));
        let dims = ([columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1], [32, 8, 1], 0);
        g.run(m, "transpose", dims, vec![ptr(px), ptr(out), int(rows), int(columns)]);
        let got = g.get::<f32>(out, rows * columns);
        for i in 0..rows * columns {
            assert_eq!(got[i], x[i % rows * columns + i / rows]);
        }

        let (key, x): (Vec<u32>, Vec<i32>) = (integers(128, 21, 0, 5), integers(128, 22, -900, 900));
        let (pk, px, out) = (g.put(&key), g.put(&x), g.room::<i32>(512));
        g.run(m, "groups", line(2, 64), vec![ptr(pk), ptr(px), ptr(out)]);
        let got = g.get::<i32>(out, 512);
        for (i, got) in got.chunks(4).enumerate() {
            let warp: Vec<usize> = (i / 32 * 32..i / 32 * 32 + 32).collect();
            let same: Vec<usize> = warp.iter().copied().filter(|&j| key[j] == key[i]).collect();
            let want = [
                same.iter().map(|&j| x[j]).sum::<i32>(),
                warp.iter().map(|&j| x[j]).sum(),
                warp.iter().map(|&j| x[j]).min().unwrap(),
                same.iter().fold(0, |r, &j| r ^ x[j]),
            ];
            assert_eq!(got, want, "{i}");
        }
    });
}

const GEMM: &str = include_str!("ptx/nvrtc/gemm_sm80.sm_80.ptx");

/// `C = A * B'` with the kernel's tile and threads a CTA; `slack` is relative to `k`.
fn gemm<T: Scalar, U: Scalar, V: Scalar>(
    text: &str,
    kernel: &str,
    (m, n, k): (usize, usize, usize),
    (tile, threads): ((usize, usize), u32),
    bits: u32,
    (slack, relative, factor): (f64, f64, f64),
) {
    each(&[text], |module, g| {
        let (a, b) = (data::<T>(m * k, 23, bits), data::<U>(n * k, 24, bits));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<V>(m * n));
        let dims = ([(n / tile.1) as u32, (m / tile.0) as u32, 1], [threads, 1, 1], 0);
        g.run(module, kernel, dims, vec![ptr(pa), ptr(pb), ptr(out), int(m), int(n), int(k)]);
        let nt = !kernel.ends_with("_nn");
        let want: Vec<f64> = product(&a, &b, m, n, k, nt).iter().map(|v| v * factor).collect();
        close(kernel, &g.get::<V>(out, m * n), &want, slack * k as f64, relative);
    });
}

#[test]
fn gemm_with_copies_and_matrix_loads() {
    let exact = (0.0, 0.0, 1.0);
    gemm::<f16, f16, f32>(GEMM, "gemm_f16", (128, 64, 160), ((64, 64), 128), 6, exact);
    let rounded = (17.0 * 2_f64.powi(-22), 0.0, 1.0);
    gemm::<f16, f16, f32>(GEMM, "gemm_f16", (64, 128, 96), ((64, 64), 128), 10, rounded);
    gemm::<bf16, bf16, f32>(GEMM, "gemm_bf16", (64, 64, 64), ((64, 64), 128), 7, exact);
}

#[test]
fn gemm_by_a_warp() {
    let exact = (0.0, 0.0, 1.0);
    gemm::<f32, f32, f32>(GEMM, "gemm_tf32", (32, 24, 40), ((16, 8), 32), 8, exact);
    gemm::<i8, i8, i32>(GEMM, "gemm_s8", (32, 24, 96), ((16, 8), 32), 0, exact);
    gemm::<f64, f64, f64>(GEMM, "gemm_f64", (16, 24, 20), ((8, 8), 32), 20, exact);
    // Half accumulators round once every 16 along K.
    gemm::<f16, f16, f16>(
        GEMM,
        "gemm_f16_nn",
        (32, 48, 64),
        ((16, 16), 32),
        3,
        (2_f64.powi(-13), 0.001, 1.0),
    );
    gemm::<f16, f16, f32>(GEMM, "gemm_wmma", (32, 48, 64), ((16, 16), 32), 6, (0.0, 0.0, 0.5));
    let fp8 = include_str!("ptx/nvrtc/gemm_sm89.sm_89.ptx");
    gemm::<F8E4M3, F8E5M2, f32>(fp8, "gemm_fp8", (32, 24, 96), ((16, 8), 32), 2, exact);
}

const HOPPER: &str = include_str!("ptx/nvrtc/gemm_sm90.sm_90a.ptx");

#[test]
fn gemm_with_tensor_copies_and_a_warpgroup() {
    each(&[HOPPER], |module, g| {
        let (m, n, k) = (128, 256, 320);
        let (a, b) = (data::<bf16>(m * k, 25, 6), data::<bf16>(n * k, 26, 6));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<bf16>(m * n));
        let map = |at, shape, boxes, swizzle| gpu::map(TensorType::Bf16, at, shape, boxes, swizzle);
        let args = vec![
            map(pa, (m, k), (64, 64), Swizzle::B128),
            map(pb, (n, k), (128, 64), Swizzle::B128),
            map(out, (m, n), (64, 64), Swizzle::None),
            int(k),
        ];
        // Three stages of A and B, a tile of C, barriers.
        let shared = 3 * (64 + 128) * 64 * 2 + 64 * 128 * 2 + 1024;
        g.run(module, "gemm_tma", ([2, 2, 1], [160, 1, 1], shared), args);
        let want = product(&a, &b, m, n, k, true);
        close("gemm_tma", &g.get::<bf16>(out, m * n), &want, 0.0, 1.0 / 256.0);
    });
}

#[test]
fn gemm_by_clusters_with_multicast() {
    each(&[include_str!("ptx/cutlass/gemm.sm_90a.ptx")], |module, g| {
        // Tiles of 128 x 32, in pairs along M; 320 is five steps, more than the pipeline has stages.
        let (m, n, k) = (256, 64, 320);
        let (a, b) = (data::<f16>(m * k, 28, 6), data::<f16>(n * k, 29, 6));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<f16>(m * n));
        let map = |at, rows, boxes| gpu::map(TensorType::F16, at, (rows, k), boxes, Swizzle::B128);
        let args = vec![map(pa, m, (128, 64)), map(pb, n, (16, 64)), ptr(out), int(n), int(k)];
        g.run(module, "gemm_cluster", ([2, 2, 1], [384, 1, 1], 3 * (128 + 32) * 64 * 2 + 1024), args);
        let want = product(&a, &b, m, n, k, true);
        close("gemm_cluster", &g.get::<f16>(out, m * n), &want, 0.0, 1.0 / 2048.0);
    });
}

#[test]
fn sums_by_clusters() {
    each(&[HOPPER], |module, g| {
        let n = 1000;
        let x = data::<f32>(n, 27, 10);
        let (px, out) = (g.put(&x), g.room::<f32>(6));
        g.run(module, "cluster_sum", line(6, 32), vec![ptr(px), ptr(out), int(n)]);
        let part = |c: usize| (0..n).filter(|i| i / 32 % 6 == c).map(|i| f64::from(x[i])).sum::<f64>();
        let want: Vec<f64> = (0..6).map(|c| part(c / 2 * 2) + part(c / 2 * 2 + 1)).collect();
        close("cluster_sum", &g.get::<f32>(out, 6), &want, 0.0, 0.0);
    });
}
