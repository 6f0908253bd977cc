//! Kernels of NVRTC and Triton that live on TMA, mbarriers, `wgmma` and clusters, held against float64.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use gpu::{Gpu, close, data, module, product};
use half::{bf16, f16};
use weft_sim::{Arg, Swizzle, TensorMap, TensorType};

/// A row-major matrix and the box of it that a copy moves.
fn matrix(
    element: TensorType,
    address: u64,
    rows: usize,
    columns: usize,
    tile: [u32; 2],
    swizzle: Swizzle,
) -> TensorMap {
    TensorMap {
        element,
        address,
        dims: vec![columns as u64, rows as u64],
        strides: vec![columns as u64 * 2],
        tile: vec![tile[1], tile[0]],
        element_strides: vec![1, 1],
        swizzle,
        fill_nan: false,
    }
}

fn bytes(map: &TensorMap) -> Arg {
    Arg::Bytes(map.encode().unwrap().to_vec())
}

fn int(n: usize) -> Arg {
    Arg::I32(n as i32)
}

/// Tiles that do not divide the sizes.
const SIZES: (usize, usize, usize) = (144, 80, 208);

#[test]
fn triton_matmul_with_descriptors_of_the_host() {
    let m = module(include_str!("ptx/triton/matmul_tma.sm_90.ptx"));
    let (rows, columns, k) = SIZES;
    for seed in 0..3 {
        let mut g = Gpu::new(seed);
        let (a, b) = (data::<f16>(rows * k, 1, 6), data::<f16>(columns * k, 2, 6));
        let (pa, pb, pc) = (g.put(&a), g.put(&b), g.room::<f16>(rows * columns));
        let mut args = Vec::new();
        for (p, r, c, tile) in
            [(pa, rows, k, [128, 64]), (pb, columns, k, [64, 64]), (pc, rows, columns, [128, 64])]
        {
            args.push(bytes(&matrix(TensorType::F16, p, r, c, tile, Swizzle::B128)));
            args.extend([int(r), int(c), Arg::U64(c as u64), Arg::U64(1)]);
        }
        args.extend([int(rows), int(columns), int(k), Arg::U64(0), Arg::U64(0)]);
        let grid = [rows.div_ceil(128) as u32, columns.div_ceil(64) as u32, 1];
        g.run(&m, "matmul_tma", (grid, [128, 1, 1], 73752), args);
        let want = product(&a, &b, rows, columns, k, true);
        close("matmul_tma", &g.get::<f16>(pc, rows * columns), &want, 0.0, 1.0 / 2048.0);
    }
}

#[test]
fn triton_matmul_with_descriptors_of_its_own() {
    let m = module(include_str!("ptx/triton/matmul_descriptor.sm_90.ptx"));
    let (rows, columns, k) = SIZES;
    for seed in 0..3 {
        let mut g = Gpu::new(seed);
        let (a, b) = (data::<f16>(rows * k, 3, 6), data::<f16>(columns * k, 4, 6));
        let (pa, pb, pc) = (g.put(&a), g.put(&b), g.room::<f16>(rows * columns));
        let grid = [rows.div_ceil(128) as u32, columns.div_ceil(64) as u32, 1];
        let scratch = g.room::<u8>(384 * (grid[0] * grid[1]) as usize);
        let args = vec![Arg::U64(pa), Arg::U64(pb), Arg::U64(pc), int(rows), int(columns), int(k)];
        let args = [args, vec![Arg::U64(scratch), Arg::U64(0)]].concat();
        g.run(&m, "matmul_descriptor", (grid, [128, 1, 1], 73752), args);
        let want = product(&a, &b, rows, columns, k, true);
        close("matmul_descriptor", &g.get::<f16>(pc, rows * columns), &want, 0.0, 1.0 / 2048.0);
    }
}

#[test]
fn nvrtc_pipeline_of_tma_and_wgmma() {
    let m = module(include_str!("ptx/nvrtc/gemm_sm90.sm_90a.ptx"));
    let (rows, columns, k) = (128, 256, 448);
    for seed in 0..3 {
        let mut g = Gpu::new(seed);
        let (a, b) = (data::<bf16>(rows * k, 5, 6), data::<bf16>(columns * k, 6, 6));
        let (pa, pb, pc) = (g.put(&a), g.put(&b), g.room::<bf16>(rows * columns));
        let map = |p, r, c, tile, swizzle| bytes(&matrix(TensorType::Bf16, p, r, c, tile, swizzle));
        let args = vec![
            map(pa, rows, k, [64, 64], Swizzle::B128),
            map(pb, columns, k, [128, 64], Swizzle::B128),
            map(pc, rows, columns, [64, 64], Swizzle::None),
            int(k),
        ];
        let grid = [columns as u32 / 128, rows as u32 / 64, 1];
        g.run(&m, "gemm_tma", (grid, [160, 1, 1], 90176), args);
        let want = product(&a, &b, rows, columns, k, true);
        close("gemm_tma", &g.get::<bf16>(pc, rows * columns), &want, 0.0, 1.0 / 256.0);
    }
}

#[test]
fn nvrtc_sum_over_clusters() {
    let m = module(include_str!("ptx/nvrtc/gemm_sm90.sm_90a.ptx"));
    for seed in 0..10 {
        let mut g = Gpu::new(seed);
        let n = 1000;
        let x = data::<f32>(n, 7, 8);
        let (px, out) = (g.put(&x), g.room::<f32>(4));
        g.run(&m, "cluster_sum", ([4, 1, 1], [32, 1, 1], 0), vec![Arg::U64(px), Arg::U64(out), int(n)]);
        let part = |cluster: usize| -> f64 {
            let mine = |i: &usize| i / 32 % 4 / 2 == cluster;
            (0..n).filter(mine).map(|i| f64::from(x[i])).sum()
        };
        let want = [0, 0, 1, 1].map(part);
        close("cluster_sum", &g.get::<f32>(out, 4), &want, 0.0, 0.0);
    }
}
