//! Kernels that Triton compiled (`ptx/triton`), held against float64.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use float8::F8E4M3;
use gpu::{Gpu, Scalar, close, data, integers, module, product};
use half::{bf16, f16};
use weft_sim::{Arg, Module, Swizzle, TensorType};

macro_rules! ptx {
    ($($name:literal),*) => { [$(include_str!(concat!("ptx/triton/", $name, ".ptx"))),*] };
}

/// A compiled kernel and how it is launched: the first line says so.
struct Kernel {
    module: Module,
    name: String,
    warps: u32,
    shared: u32,
}

impl Kernel {
    fn new(text: &str) -> Kernel {
        let head = text.lines().next().unwrap();
        let number = |before: &str| -> u32 {
            head.split(before).next().unwrap().rsplit(' ').find(|w| !w.is_empty()).unwrap().parse().unwrap()
        };
        let module = module(text);
        let name = module.kernels()[0].name.clone();
        Kernel { module, name, warps: number(" warps"), shared: number(" bytes") }
    }

    /// Behind a kernel's own arguments come its scratch memory and the profiler's.
    fn run(&self, g: &mut Gpu, grid: [usize; 2], args: Vec<Arg>) {
        self.run_with_scratch(g, grid, args, 0);
    }

    fn run_with_scratch(&self, g: &mut Gpu, grid: [usize; 2], mut args: Vec<Arg>, scratch: u64) {
        args.extend([Arg::U64(scratch), Arg::U64(0)]);
        let grid = [grid[0] as u32, grid[1] as u32, 1];
        g.run(&self.module, &self.name, (grid, [32 * self.warps, 1, 1], self.shared), args);
    }
}

/// Runs for each target and a few schedules.
fn each(texts: &[&str], f: impl Fn(&Kernel, &mut Gpu)) {
    for text in texts {
        let kernel = Kernel::new(text);
        for seed in 0..3 {
            f(&kernel, &mut Gpu::new(seed));
        }
    }
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
fn vector_add() {
    each(&ptx!("vector_add.sm_80", "vector_add.sm_90"), |k, g| {
        let n = 3001;
        let (a, b) = (data::<f32>(n, 1, 20), data::<f32>(n, 2, 20));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<f32>(n));
        k.run(g, [n.div_ceil(1024), 1], vec![ptr(pa), ptr(pb), ptr(out), int(n)]);
        let want: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(a + b)).collect();
        close("vector_add", &g.get::<f32>(out, n), &want, 0.0, 0.0);
    });
}

#[test]
fn softmax() {
    each(&ptx!("softmax.sm_80", "softmax.sm_90"), |k, g| {
        let (rows, n, stride) = (3, 781, 800);
        let x: Vec<f32> = data::<f32>(rows * stride, 3, 20).iter().map(|v| v * 8.0).collect();
        let (px, out) = (g.put(&x), g.put(&vec![7_f32; rows * stride]));
        k.run(g, [rows, 1], vec![ptr(px), ptr(out), int(stride), int(n)]);
        let mut want = vec![7.0; rows * stride];
        for r in 0..rows {
            let row = values(&x[r * stride..r * stride + n]);
            let top = row.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
            (0..n).for_each(|i| want[r * stride + i] = (row[i] - top).exp() / sum);
        }
        close("softmax", &g.get::<f32>(out, rows * stride), &want, 1e-12, 1e-5);
    });
}

#[test]
fn layernorm() {
    each(&ptx!("layernorm.sm_80", "layernorm.sm_90"), |k, g| {
        let (rows, n, eps) = (3, 500, 1e-5);
        let x = data::<f16>(rows * n, 4, 9);
        let (w, b) = (data::<f32>(n, 5, 8), data::<f32>(n, 6, 8));
        let (px, pw, pb, out) = (g.put(&x), g.put(&w), g.put(&b), g.room::<f16>(rows * n));
        k.run(g, [rows, 1], vec![ptr(px), ptr(pw), ptr(pb), ptr(out), int(n), Arg::F32(eps)]);
        let norm = |row: &[f16]| {
            let row = values(row);
            let mean = row.iter().sum::<f64>() / n as f64;
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            let r = 1.0 / (var + f64::from(eps)).sqrt();
            (0..n).map(|i| (row[i] - mean) * r * f64::from(w[i]) + f64::from(b[i])).collect::<Vec<_>>()
        };
        let want: Vec<f64> = x.chunks(n).flat_map(norm).collect();
        close("layernorm", &g.get::<f16>(out, rows * n), &want, 1e-5, 1.0 / 2000.0);
    });
}

#[test]
fn gelu_and_doubles() {
    each(&ptx!("gelu.sm_80"), |k, g| {
        let n = 600;
        let x: Vec<f32> = data::<f32>(n, 7, 22).iter().map(|v| v * 4.0).collect();
        let (px, out) = (g.put(&x), g.room::<f32>(n));
        k.run(g, [3, 1], vec![ptr(px), ptr(out), int(n)]);
        let u = |v: f64| 0.7978845608 * (v + 0.044715 * v * v * v);
        let want: Vec<f64> = values(&x).iter().map(|&v| 0.5 * v * (1.0 + u(v).tanh())).collect();
        close("gelu", &g.get::<f32>(out, n), &want, 2e-6, 2e-6);
    });
    each(&ptx!("doubles.sm_80"), |k, g| {
        let n = 600;
        let x: Vec<f64> = data::<f64>(n, 8, 40).iter().map(|v| v * 9.0).collect();
        let (px, out) = (g.put(&x), g.room::<f64>(n));
        k.run(g, [3, 1], vec![ptr(px), ptr(out), int(n)]);
        let want: Vec<f64> = x.iter().map(|&v| (v * v + 1.0).sqrt() / (2.0 + v * v) + v * v + 0.25).collect();
        close("doubles", &g.get::<f64>(out, n), &want, 0.0, 1e-15);
    });
}

/// First word of Philox 4x32-10 of this counter and seed.
fn philox(i: u32, seed: u32) -> u32 {
    let (mut c, mut k) = ([i, 0, 0, 0], [seed, 0]);
    for _ in 0..10 {
        let (p, q) = (0xd251_1f53_u64 * u64::from(c[0]), 0xcd9e_8d57_u64 * u64::from(c[2]));
        c = [(q >> 32) as u32 ^ c[1] ^ k[0], q as u32, (p >> 32) as u32 ^ c[3] ^ k[1], p as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c[0]
}

#[test]
fn dropout() {
    each(&ptx!("dropout.sm_80"), |k, g| {
        let (n, p, seed) = (1200, 0.4_f32, 1234);
        let x = data::<f32>(n, 9, 20);
        let (px, out) = (g.put(&x), g.room::<f32>(n));
        k.run(g, [3, 1], vec![ptr(px), ptr(out), Arg::F32(p), int(seed), int(n)]);
        // Triton folds the sign and scales.
        let uniform = |i: usize| {
            let v = philox(i as u32, seed as u32) as i32;
            (if v < 0 { -v - 1 } else { v }) as f32 * 4.656_612_7e-10
        };
        let want: Vec<f64> =
            (0..n).map(|i| if uniform(i) > p { f64::from(x[i] / (1.0 - p)) } else { 0.0 }).collect();
        close("dropout", &g.get::<f32>(out, n), &want, 0.0, 1e-6);
    });
}

#[test]
fn atomics() {
    each(&ptx!("histogram.sm_80"), |k, g| {
        let n = 1900;
        let x: Vec<i32> = integers(n, 10, 0, 63);
        let (px, out) = (g.put(&x), g.put(&[0_i32; 64]));
        k.run(g, [n.div_ceil(512), 1], vec![ptr(px), ptr(out), int(n)]);
        let mut want = vec![0; 64];
        x.iter().for_each(|&v| want[v as usize] += 1);
        assert_eq!(g.get::<i32>(out, 64), want);
    });
    each(&ptx!("scatter_max.sm_80"), |k, g| {
        let n = 700;
        let (x, key) = (data::<f32>(n, 11, 20), integers::<i32>(n, 12, 0, 30));
        let (px, pk, out) = (g.put(&x), g.put(&key), g.put(&[-0.5_f32; 31]));
        k.run(g, [3, 1], vec![ptr(px), ptr(pk), ptr(out), int(n)]);
        let mut want = vec![-0.5_f64; 31];
        for (v, k) in x.iter().zip(&key) {
            want[*k as usize] = want[*k as usize].max(f64::from(*v));
        }
        close("scatter_max", &g.get::<f32>(out, 31), &want, 0.0, 0.0);
    });
}

#[test]
fn transpose() {
    each(&ptx!("transpose.sm_80", "transpose.sm_90"), |k, g| {
        let (rows, columns) = (100, 77);
        let x = data::<f16>(rows * columns, 13, 10);
        let (px, out) = (g.put(&x), g.room::<f16>(rows * columns));
        let grid = [rows.div_ceil(64), columns.div_ceil(64)];
        k.run(g, grid, vec![ptr(px), ptr(out), int(rows), int(columns)]);
        let got = g.get::<f16>(out, rows * columns);
        for (i, v) in got.iter().enumerate() {
            assert_eq!(*v, x[i % rows * columns + i / rows], "{i}");
        }
    });
}

#[test]
fn scans_sorts_and_searches() {
    each(&ptx!("scan.sm_80"), |k, g| {
        let (rows, n) = (2, 1000);
        let x: Vec<i32> = integers(rows * n, 14, -100, 100);
        let (px, out) = (g.put(&x), g.room::<i32>(rows * n));
        k.run(g, [rows, 1], vec![ptr(px), ptr(out), int(n)]);
        let scan = |c: &[i32]| {
            let step = |s: &mut i32, v: &i32| {
                *s += v;
                Some(*s)
            };
            c.iter().scan(0, step).collect::<Vec<_>>()
        };
        assert_eq!(g.get::<i32>(out, rows * n), x.chunks(n).flat_map(scan).collect::<Vec<_>>());
    });
    each(&ptx!("argmax.sm_80"), |k, g| {
        let (rows, n) = (4, 450);
        let mut x = data::<f32>(rows * n, 15, 20);
        (x[7], x[9], x[3 * n - 1]) = (3.0, 3.0, 4.0);
        let (px, value, index) = (g.put(&x), g.room::<f32>(rows), g.room::<i32>(rows));
        k.run(g, [rows, 1], vec![ptr(px), ptr(value), ptr(index), int(n)]);
        let best = |row: &[f32]| (0..n).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let want: Vec<usize> = x.chunks(n).map(best).collect();
        assert_eq!(g.get::<i32>(index, rows), want.iter().map(|&i| i as i32).collect::<Vec<_>>());
        let top: Vec<f32> = want.iter().enumerate().map(|(r, i)| x[r * n + i]).collect();
        assert_eq!(g.get::<f32>(value, rows), top);
    });
    each(&ptx!("sort.sm_80"), |k, g| {
        let x: Vec<i32> = integers(512, 16, -1_000_000, 1_000_000);
        let (px, out) = (g.put(&x), g.room::<i32>(512));
        k.run(g, [2, 1], vec![ptr(px), ptr(out)]);
        let mut want = x.clone();
        want.chunks_mut(256).for_each(<[i32]>::sort_unstable);
        assert_eq!(g.get::<i32>(out, 512), want);
    });
}

/// Sizes that are not multiples of the tiles; the compiler was told that they are of 16.
const SIZES: (usize, usize, usize) = (80, 112, 144);

/// `C = A * B` with `A` of `m x k`, `B` of `n x k` (`nt`) or `k x n`. `slack` is the error allowed, relative to the sum of
/// the products' magnitudes, which is at most `k` here; `relative` is the result type's.
fn matmul<T: Scalar, U: Scalar>(
    texts: &[&str],
    nt: bool,
    bits: u32,
    tile: usize,
    (slack, relative): (f64, f64),
) {
    each(texts, |kernel, g| {
        let (m, n, k) = SIZES;
        let (a, b) = (data::<T>(m * k, 17, bits), data::<T>(n * k, 18, bits));
        let (pa, pb, out) = (g.put(&a), g.put(&b), g.room::<U>(m * n));
        let strides = [k, if nt { k } else { n }, n].map(int);
        let args = [vec![ptr(pa), ptr(pb), ptr(out), int(m), int(n), int(k)], strides.to_vec()].concat();
        kernel.run(g, [m.div_ceil(tile), n.div_ceil(tile)], args);
        let want = product(&a, &b, m, n, k, nt);
        close(&kernel.name, &g.get::<U>(out, m * n), &want, slack * k as f64, relative);
    });
}

#[test]
fn matmul_of_doubles() {
    matmul::<f64, f64>(&ptx!("matmul_f64.sm_80"), true, 40, 32, (1e-15, 0.0));
}

/// Products of values of few bits: sums are exact in single precision, in any order.
const EXACT: (f64, f64) = (0.0, 0.0);

#[test]
fn matmul_of_halves() {
    let texts = ptx!("matmul_f16.sm_80", "matmul_f16.sm_90");
    matmul::<f16, f16>(&texts, true, 6, 64, (0.0, 1.0 / 2048.0));
    // Of all bits that halves have: by the tolerance of sums.
    matmul::<f16, f16>(&texts, true, 10, 64, (17.0 * 2_f64.powi(-22), 1.0 / 2048.0));
    matmul::<bf16, f32>(&ptx!("matmul_bf16.sm_80", "matmul_bf16.sm_90"), false, 6, 64, EXACT);
}

#[test]
fn matmul_with_half_accumulators() {
    // Each multiplication of 16 along K rounds to a half.
    let texts = ptx!("matmul_f16_f16.sm_80", "matmul_f16_f16.sm_90");
    matmul::<f16, f16>(&texts, true, 3, 64, (9.0 / 144.0 * 2_f64.powi(-6), 1.0 / 2048.0));
}

#[test]
fn matmul_of_tf32() {
    matmul::<f32, f32>(&ptx!("matmul_tf32.sm_80", "matmul_tf32.sm_90"), true, 7, 64, EXACT);
}

#[test]
fn matmul_of_fp8() {
    matmul::<F8E4M3, f32>(&ptx!("matmul_fp8.sm_89"), true, 3, 64, EXACT);
    // Thirteen bits of fraction on each addition of 32 along K.
    let slack = 33.0 / 32.0 * 2_f64.powi(-11);
    matmul::<F8E4M3, f32>(&ptx!("matmul_fp8.sm_90"), true, 3, 64, (slack, 0.0));
}

#[test]
fn matmul_of_integers() {
    matmul::<i8, i32>(&ptx!("matmul_s8.sm_80", "matmul_s8.sm_90"), true, 0, 64, EXACT);
}

/// Causal attention of one head, rows of `d`.
fn attention_of(q: &[f64], k: &[f64], v: &[f64], n: usize, d: usize, scale: f64) -> Vec<f64> {
    let dot = |i: usize, j: usize| (0..d).map(|x| q[i * d + x] * k[j * d + x]).sum::<f64>() * scale;
    let row = |i: usize| {
        let s: Vec<f64> = (0..=i).map(|j| dot(i, j)).collect();
        let top = s.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let p: Vec<f64> = s.iter().map(|s| (s - top).exp()).collect();
        let sum: f64 = p.iter().sum();
        (0..d)
            .map(|x| p.iter().enumerate().map(|(j, p)| p * v[j * d + x]).sum::<f64>() / sum)
            .collect::<Vec<_>>()
    };
    (0..n).flat_map(row).collect()
}

#[test]
fn attention() {
    each(&ptx!("attention.sm_80", "attention.sm_90"), |kernel, g| {
        let (heads, n, d, scale) = (2, 112, 64, 0.125_f32);
        let [q, k, v] = [1, 2, 3].map(|salt| data::<f16>(heads * n * d, 20 + salt, 8));
        let (pq, pk, pv, out) = (g.put(&q), g.put(&k), g.put(&v), g.room::<f16>(heads * n * d));
        let args = vec![ptr(pq), ptr(pk), ptr(pv), ptr(out), int(n), Arg::F32(scale)];
        kernel.run(g, [n.div_ceil(64), heads], args);
        let size = n * d;
        let head = |h: usize| {
            let part = |x: &[f16]| values(&x[h * size..(h + 1) * size]);
            attention_of(&part(&q), &part(&k), &part(&v), n, d, scale.into())
        };
        let want: Vec<f64> = (0..heads).flat_map(head).collect();
        // Probabilities are rounded to halves.
        close("attention", &g.get::<f16>(out, heads * size), &want, 1e-3, 1.0 / 1024.0);
    });
}

#[test]
fn matmul_with_tensor_maps() {
    // Tiles of 128 x 64 and 64 along K; what lies outside is read as zero and not written.
    let (m, n, k) = (208, 112, 144);
    let operands = |g: &mut Gpu| {
        let (a, b) = (data::<f16>(m * k, 30, 6), data::<f16>(n * k, 31, 6));
        let want = product(&a, &b, m, n, k, true);
        ([g.put(&a), g.put(&b), g.room::<f16>(m * n)], want)
    };
    let grid = [m.div_ceil(128), n.div_ceil(64)];
    each(&ptx!("matmul_tma.sm_90"), |kernel, g| {
        let ([pa, pb, out], want) = operands(g);
        // A descriptor is a tensor map, the sizes and the strides.
        let descriptor = |at, (rows, columns): (usize, usize), boxes| {
            let map = gpu::map(TensorType::F16, at, (rows, columns), boxes, Swizzle::B128);
            vec![map, int(rows), int(columns), Arg::U64(columns as u64), Arg::U64(1)]
        };
        let mut args = descriptor(pa, (m, k), (128, 64));
        args.extend(descriptor(pb, (n, k), (64, 64)));
        args.extend(descriptor(out, (m, n), (128, 64)));
        args.extend([m, n, k].map(int));
        kernel.run(g, grid, args);
        close("matmul_tma", &g.get::<f16>(out, m * n), &want, 0.0, 1.0 / 2048.0);
    });
    each(&ptx!("matmul_descriptor.sm_90"), |kernel, g| {
        let ([pa, pb, out], want) = operands(g);
        // 384 bytes a CTA, for its tensor maps.
        let scratch = g.room::<u8>(384 * grid[0] * grid[1]);
        let args = vec![ptr(pa), ptr(pb), ptr(out), int(m), int(n), int(k)];
        kernel.run_with_scratch(g, grid, args, scratch);
        close("matmul_descriptor", &g.get::<f16>(out, m * n), &want, 0.0, 1.0 / 2048.0);
    });
}
