//! Kernels that NVRTC and Triton compiled, on small data.

use super::super::common::Rng;
use super::data::bytes;
use super::{Item, Job, Map};

/// Multiples of 1/16 between -4 and 4, exact in every format of 7 bits of fraction; sums of them are exact in f32.
fn steps(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng(seed);
    (0..n).map(|_| (rng.below(128) as f32 - 64.0) / 16.0).collect()
}

fn words(n: usize, below: u64, seed: u64) -> Vec<u32> {
    let mut rng = Rng(seed);
    (0..n).map(|_| rng.below(below) as u32).collect()
}

fn f32s(n: usize, seed: u64) -> Item {
    Item::In(steps(n, seed).iter().flat_map(|v| v.to_le_bytes()).collect())
}

fn f64s(n: usize, seed: u64) -> Item {
    Item::In(steps(n, seed).iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect())
}

/// Of numbers that need no more bits: the format's bits from those of f32.
fn narrow(n: usize, seed: u64, exp: u32, man: u32) -> Vec<u32> {
    let one = |v: f32| {
        let bits = v.to_bits();
        let e = (bits >> 23 & 255) as i32 - 127 + (1 << (exp - 1)) - 1;
        let magnitude = if v == 0.0 { 0 } else { (e as u32) << man | (bits & 0x7f_ffff) >> (23 - man) };
        bits >> 31 << (exp + man) | magnitude
    };
    steps(n, seed).into_iter().map(one).collect()
}

fn f16s(n: usize, seed: u64) -> Item {
    Item::In(narrow(n, seed, 5, 10).iter().flat_map(|v| (*v as u16).to_le_bytes()).collect())
}

fn bf16(n: usize, seed: u64) -> Vec<u8> {
    narrow(n, seed, 8, 7).iter().flat_map(|v| (*v as u16).to_le_bytes()).collect()
}

fn bf16s(n: usize, seed: u64) -> Item {
    Item::In(bf16(n, seed))
}

/// Any bytes but the NaNs of 8-bit formats.
fn fp8s(n: usize, seed: u64) -> Item {
    let mut rng = Rng(seed);
    Item::In((0..n).map(|_| (rng.below(2) as u8) << 7 | rng.below(0x70) as u8).collect())
}

fn i8s(n: usize, seed: u64) -> Item {
    Item::In(words(n, 256, seed).iter().map(|v| *v as u8).collect())
}

fn u32s(n: usize, below: u64, seed: u64) -> Item {
    Item::In(bytes(&words(n, below, seed)))
}

fn zeros(n: usize) -> Item {
    Item::Out(n)
}

struct List(Vec<Job>);

impl List {
    fn add(
        &mut self,
        [file, text]: [&str; 2],
        entry: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        args: Vec<Item>,
    ) {
        let name = format!("{file} {entry}");
        let (ptx, entry) = (text.to_string(), entry.to_string());
        self.0.push(Job { name, ptx, entry, grid, block, shared, args, raw: 4096 });
    }
}

macro_rules! file {
    ($path:literal) => {
        [$path, include_str!(concat!("../../ptx/", $path))]
    };
}

const fn line(n: u32) -> [u32; 3] {
    [n, 1, 1]
}

fn nvrtc(l: &mut List) {
    use Item::{F32, I32, I64};
    let n = 1000;
    for file in [file!("nvrtc/elementwise.sm_80.ptx"), file!("nvrtc/elementwise.sm_90.ptx")] {
        let (grid, block) = (line(4), line(256));
        let mut add = |entry: &str, args: Vec<Item>| l.add(file, entry, grid, block, 0, args);
        let count = I32(n as i32);
        let half = I32(n as i32 / 2);
        add("vector_add", vec![f32s(n, 1), f32s(n, 2), zeros(4 * n), count.clone()]);
        let Item::In(y) = f32s(n, 3) else { return };
        add("saxpy4", vec![Item::InOut(y), f32s(n, 4), F32(1.3), I32(n as i32 / 4)]);
        add("gelu", vec![f32s(n, 5), zeros(4 * n), zeros(4 * n), count.clone()]);
        add("swiglu_bf16", vec![bf16s(n, 6), bf16s(n, 7), zeros(2 * n), half.clone()]);
        add("half_arithmetic", vec![f16s(n, 8), f16s(n, 9), zeros(2 * n), half]);
        add("quantize", vec![f32s(n, 10), zeros(n), zeros(n), zeros(n), F32(33.3), count.clone()]);
        add("doubles", vec![f64s(n, 11), zeros(8 * n), count.clone()]);
        add("dropout", vec![f32s(n, 12), zeros(4 * n), F32(0.3), I32(0x1234_5678), count.clone()]);
        let x = u32s(n, 1 << 32, 13);
        add("integers", vec![x, zeros(32 * n), I32(0x0123_4567), I64(-98_765_432_101), count]);
    }
    for file in [file!("nvrtc/reduce.sm_80.ptx"), file!("nvrtc/reduce.sm_90.ptx")] {
        let count = Item::I32(n as i32);
        let mut add = |entry: &str, grid: [u32; 3], block: [u32; 3], args: Vec<Item>| {
            l.add(file, entry, grid, block, 0, args);
        };
        add("sum", line(2), line(256), vec![f32s(n, 20), zeros(4), count.clone()]);
        add("softmax", line(3), line(128), vec![f32s(900, 21), zeros(3600), I32(300)]);
        let rows = vec![bf16s(900, 22), f32s(300, 23), f32s(300, 24), zeros(1800), I32(300), F32(1e-5)];
        add("layernorm", line(3), line(128), rows);
        add("scan", line(4), line(256), vec![u32s(n, 1000, 25), zeros(4 * n), count.clone()]);
        add("histogram", line(2), line(256), vec![i8s(n, 26), zeros(1024), count.clone()]);
        add("compact", line(1), line(32), vec![u32s(32, 100, 27), zeros(128), zeros(4), I32(40), I32(30)]);
        add("argmax", line(4), line(256), vec![f32s(n, 28), zeros(8), count]);
        add("transpose", [2, 3, 1], [32, 8, 1], vec![f32s(70 * 50, 29), zeros(14000), I32(70), I32(50)]);
        add("groups", line(2), line(128), vec![u32s(256, 5, 30), u32s(256, 1 << 32, 31), zeros(4096)]);
    }
    let sizes = |m: i32, n: i32, k: i32| [I32(m), I32(n), I32(k)];
    let file = file!("nvrtc/gemm_sm80.sm_80.ptx");
    let mut add = |file, entry: &str, grid: [u32; 3], block, a: Item, b: Item, c: usize, mnk: [Item; 3]| {
        l.add(file, entry, grid, line(block), 0, [vec![a, b, zeros(c)], mnk.to_vec()].concat());
    };
    let (m, n, k) = (64, 128, 96);
    let mnk = || sizes(m as i32, n as i32, k as i32);
    add(file, "gemm_f16", [2, 1, 1], 128, f16s(m * k, 40), f16s(n * k, 41), 4 * m * n, mnk());
    add(file, "gemm_bf16", [2, 1, 1], 128, bf16s(m * k, 42), bf16s(n * k, 43), 4 * m * n, mnk());
    let (m, n, k) = (32, 16, 64);
    let mnk = || sizes(m as i32, n as i32, k as i32);
    add(file, "gemm_tf32", [2, 2, 1], 32, f32s(m * k, 44), f32s(n * k, 45), 4 * m * n, mnk());
    add(file, "gemm_s8", [2, 2, 1], 32, i8s(m * k, 46), i8s(n * k, 47), 4 * m * n, mnk());
    add(file, "gemm_f64", [2, 4, 1], 32, f64s(m * k, 48), f64s(n * k, 49), 8 * m * n, mnk());
    add(file, "gemm_f16_nn", [1, 2, 1], 32, f16s(m * k, 50), f16s(n * k, 51), 2 * m * n, mnk());
    add(file, "gemm_wmma", [1, 2, 1], 32, f16s(m * k, 52), f16s(n * k, 53), 4 * m * n, mnk());
    let file = file!("nvrtc/gemm_sm89.sm_89.ptx");
    add(file, "gemm_fp8", [2, 2, 1], 32, fp8s(m * k, 54), fp8s(n * k, 55), 4 * m * n, mnk());

    let file = file!("nvrtc/gemm_sm90.sm_90a.ptx");
    let (m, n, k) = (128, 256, 192);
    let args = vec![
        map(6 + 3, bf16(m * k, 60), [k, m], [64, 64], 3, false),
        map(6 + 3, bf16(n * k, 61), [k, n], [64, 128], 3, false),
        map(6 + 3, vec![0; 2 * m * n], [n, m], [64, 64], 0, true),
        Item::I32(k as i32),
    ];
    l.add(file, "gemm_tma", [2, 2, 1], line(160), 92160, args);
    l.add(file, "cluster_sum", line(4), line(32), 0, vec![f32s(1000, 62), zeros(16), Item::I32(1000)]);
}

/// A matrix of 16-bit elements, columns first.
fn map(
    data_type: u32,
    data: Vec<u8>,
    dims: [usize; 2],
    boxes: [u32; 2],
    swizzle: u32,
    written: bool,
) -> Item {
    Item::Map(Box::new(Map {
        data,
        data_type,
        dims: dims.map(|d| d as u64).to_vec(),
        strides: vec![2 * dims[0] as u64],
        boxes: boxes.to_vec(),
        steps: vec![1, 1],
        swizzle,
        nan: false,
        written,
    }))
}

/// The numbers in the first line: warps, dynamic shared memory.
fn head(text: &str) -> [u32; 2] {
    let mut numbers = text
        .lines()
        .next()
        .unwrap_or("")
        .split([';', ','])
        .skip(1)
        .map(|part| part.split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)]
}

fn triton(l: &mut List) {
    use Item::{F32, I32, Null};
    let mut add = |file: [&str; 2], entry: &str, grid: [u32; 3], args: Vec<Item>| {
        let [warps, shared] = head(file[1]);
        let scratch = if entry == "matmul_descriptor" { Item::Scratch(65536) } else { Null };
        l.add(file, entry, grid, line(32 * warps), shared, [args, vec![scratch, Null]].concat());
    };
    let n = 1500;
    let count = || I32(n as i32);
    for file in [file!("triton/vector_add.sm_80.ptx"), file!("triton/vector_add.sm_90.ptx")] {
        add(file, "vector_add", line(2), vec![f32s(n, 70), f32s(n, 71), zeros(4 * n), count()]);
    }
    for file in [file!("triton/softmax.sm_80.ptx"), file!("triton/softmax.sm_90.ptx")] {
        add(file, "softmax", line(2), vec![f32s(1920, 72), zeros(7680), I32(960), I32(900)]);
    }
    for file in [file!("triton/layernorm.sm_80.ptx"), file!("triton/layernorm.sm_90.ptx")] {
        let args = vec![f16s(900, 73), f32s(450, 74), f32s(450, 75), zeros(1800), I32(450), F32(1e-5)];
        add(file, "layernorm", line(2), args);
    }
    add(file!("triton/gelu.sm_80.ptx"), "gelu", line(6), vec![f32s(n, 76), zeros(4 * n), count()]);
    let args = vec![f32s(n, 77), zeros(4 * n), F32(0.4), I32(77), count()];
    add(file!("triton/dropout.sm_80.ptx"), "dropout", line(3), args);
    add(
        file!("triton/histogram.sm_80.ptx"),
        "histogram",
        line(3),
        vec![u32s(n, 64, 78), zeros(256), count()],
    );
    let args = vec![f32s(n, 79), u32s(n, 50, 80), zeros(200), count()];
    add(file!("triton/scatter_max.sm_80.ptx"), "scatter_max", line(6), args);
    for file in [file!("triton/transpose.sm_80.ptx"), file!("triton/transpose.sm_90.ptx")] {
        add(file, "transpose", [2, 2, 1], vec![f16s(7200, 81), zeros(14400), I32(100), I32(72)]);
    }
    add(file!("triton/scan.sm_80.ptx"), "scan", line(2), vec![u32s(1800, 1000, 82), zeros(7200), I32(900)]);
    let args = vec![f32s(900, 83), zeros(8), zeros(8), I32(450)];
    add(file!("triton/argmax.sm_80.ptx"), "argmax", line(2), args);
    add(file!("triton/sort.sm_80.ptx"), "sort", line(2), vec![u32s(512, 1 << 32, 84), zeros(2048)]);
    add(file!("triton/doubles.sm_80.ptx"), "doubles", line(2), vec![f64s(500, 85), zeros(4000), I32(500)]);

    let (m, n, k) = (80, 96, 160);
    let mnk = || [I32(m as i32), I32(n as i32), I32(k as i32)];
    let f16 = || vec![f16s(m * k, 90), f16s(n * k, 91)];
    let s8 = || vec![i8s(m * k, 92), i8s(n * k, 93)];
    let fp8 = || vec![fp8s(m * k, 94), fp8s(n * k, 95)];
    let bf16 = || vec![bf16s(m * k, 96), bf16s(n * k, 97)];
    let f32 = || vec![f32s(m * k, 98), f32s(n * k, 99)];
    for (file, ab, c, tile) in [
        (file!("triton/matmul_f16.sm_80.ptx"), f16(), 2, 64),
        (file!("triton/matmul_f16.sm_90.ptx"), f16(), 2, 64),
        (file!("triton/matmul_f16_f16.sm_80.ptx"), f16(), 2, 64),
        (file!("triton/matmul_f16_f16.sm_90.ptx"), f16(), 2, 64),
        (file!("triton/matmul_bf16.sm_80.ptx"), bf16(), 4, 64),
        (file!("triton/matmul_bf16.sm_90.ptx"), bf16(), 4, 64),
        (file!("triton/matmul_tf32.sm_80.ptx"), f32(), 4, 64),
        (file!("triton/matmul_tf32.sm_90.ptx"), f32(), 4, 64),
        (file!("triton/matmul_s8.sm_80.ptx"), s8(), 4, 64),
        (file!("triton/matmul_s8.sm_90.ptx"), s8(), 4, 64),
        (file!("triton/matmul_fp8.sm_89.ptx"), fp8(), 4, 64),
        (file!("triton/matmul_fp8.sm_90.ptx"), fp8(), 4, 64),
        (file!("triton/matmul_f64.sm_80.ptx"), vec![f64s(m * k, 100), f64s(n * k, 101)], 8, 32),
    ] {
        let b = if file[0].contains("bf16") { n } else { k };
        let strides = [I32(k as i32), I32(b as i32), I32(n as i32)];
        let args = [ab, vec![zeros(c * m * n)], mnk().to_vec(), strides.to_vec()].concat();
        add(file, "matmul", [(m as u32).div_ceil(tile), (n as u32).div_ceil(tile), 1], args);
    }
    let (m, n, k) = (256, 128, 192);
    let mnk = [I32(m as i32), I32(n as i32), I32(k as i32)].to_vec();
    let f16 = |n, seed| match f16s(n, seed) {
        Item::In(d) => d,
        _ => Vec::new(),
    };
    let shape = |r: usize, c: usize| vec![I32(r as i32), I32(c as i32), Item::I64(c as i64), Item::I64(1)];
    let args = [
        vec![map(6, f16(m * k, 102), [k, m], [64, 128], 3, false)],
        shape(m, k),
        vec![map(6, f16(n * k, 103), [k, n], [64, 64], 3, false)],
        shape(n, k),
        vec![map(6, vec![0; 2 * m * n], [n, m], [64, 128], 3, true)],
        shape(m, n),
        mnk.clone(),
    ]
    .concat();
    add(file!("triton/matmul_tma.sm_90.ptx"), "matmul_tma", [2, 2, 1], args);
    let args = [vec![f16s(m * k, 102), f16s(n * k, 103), zeros(2 * m * n)], mnk].concat();
    add(file!("triton/matmul_descriptor.sm_90.ptx"), "matmul_descriptor", [2, 2, 1], args);
    let (rows, each) = (80, 2 * 80 * 64);
    for file in [file!("triton/attention.sm_80.ptx"), file!("triton/attention.sm_90.ptx")] {
        let args =
            vec![f16s(each, 110), f16s(each, 111), f16s(each, 112), zeros(2 * each), I32(rows), F32(0.125)];
        add(file, "attention", [2, 2, 1], args);
    }
}

pub fn jobs() -> Vec<Job> {
    let mut l = List(Vec::new());
    nvrtc(&mut l);
    triton(&mut l);
    l.0
}
