//! One PE that runs kernels of others: typed buffers, launches, comparison with float64.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several test programs"
)]

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use weft_sim::{Arg, Check, Config, Launch, Machine, Module, SimError, Swizzle, TensorMap, TensorType};

/// A type of buffers' elements.
pub trait Scalar: Copy {
    const BYTES: usize;
    fn put(self) -> Vec<u8>;
    fn get(bytes: &[u8]) -> Self;
    /// Rounded to nearest.
    fn of(x: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! scalar {
    ($($t:ty: $of:expr, $value:expr;)*) => {
        $(impl Scalar for $t {
            const BYTES: usize = size_of::<$t>();
            fn put(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn get(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(bytes.try_into().unwrap())
            }
            fn of(x: f64) -> Self {
                $of(x)
            }
            fn value(self) -> f64 {
                $value(self)
            }
        })*
    };
}

scalar! {
    u8: |x| x as u8, f64::from;
    i8: |x| x as i8, f64::from;
    u32: |x| x as u32, f64::from;
    i32: |x| x as i32, f64::from;
    u64: |x| x as u64, |v| v as f64;
    i64: |x| x as i64, |v| v as f64;
    f32: |x| x as f32, f64::from;
    f64: |x| x, |v| v;
    f16: f16::from_f64, f16::to_f64;
    bf16: bf16::from_f64, bf16::to_f64;
}

macro_rules! float8 {
    ($($t:ty)*) => {
        $(impl Scalar for $t {
            const BYTES: usize = 1;
            fn put(self) -> Vec<u8> {
                vec![self.to_bits()]
            }
            fn get(bytes: &[u8]) -> Self {
                <$t>::from_bits(bytes[0])
            }
            fn of(x: f64) -> Self {
                <$t>::from_f64(x)
            }
            fn value(self) -> f64 {
                self.to_f64()
            }
        })*
    };
}

float8! { F8E4M3 F8E5M2 }

/// Shape of a launch: grid, block, bytes of dynamic shared memory. Clusters are as the kernel says.
pub type Dims = ([u32; 3], [u32; 3], u32);

pub struct Gpu {
    pub machine: Machine,
}

impl Gpu {
    pub fn new(seed: u64) -> Gpu {
        // The checks take most of the time; one schedule of a kernel is enough for them.
        let check = (seed == 0).then(Check::default);
        Gpu { machine: Machine::new(Config::default().seed(seed).check(check)).unwrap() }
    }

    /// A buffer with contents; its address.
    pub fn put<T: Scalar>(&mut self, data: &[T]) -> u64 {
        let bytes: Vec<u8> = data.iter().flat_map(|v| v.put()).collect();
        let addr = self.machine.alloc(0, "in", bytes.len() as u64, 256).unwrap();
        self.machine.write(0, addr, &bytes).unwrap();
        addr
    }

    /// A buffer that nobody has written.
    pub fn room<T: Scalar>(&mut self, n: usize) -> u64 {
        self.machine.alloc(0, "out", (n * T::BYTES) as u64, 256).unwrap()
    }

    pub fn get<T: Scalar>(&self, addr: u64, n: usize) -> Vec<T> {
        let mut bytes = vec![0; n * T::BYTES];
        self.machine.read(0, addr, &mut bytes).unwrap();
        bytes.chunks_exact(T::BYTES).map(T::get).collect()
    }

    pub fn try_run(
        &mut self,
        module: &Module,
        kernel: &str,
        dims: Dims,
        args: Vec<Arg>,
    ) -> Result<weft_sim::Stats, SimError> {
        let (grid, block, dynamic_shared) = dims;
        self.machine.launch(
            module,
            kernel,
            &[Launch::default().grid(grid).block(block).dynamic_shared(dynamic_shared).args(args)],
        )
    }

    /// Runs a kernel that is right: it ends, and no check finds anything.
    pub fn run(&mut self, module: &Module, kernel: &str, dims: Dims, args: Vec<Arg>) {
        self.try_run(module, kernel, dims, args).unwrap_or_else(|e| panic!("{kernel}: {e}"));
        if let Some(finding) = self.machine.take_findings().first() {
            panic!("{kernel}: {finding}");
        }
    }
}

pub fn module(text: &str) -> Module {
    Module::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Numbers that differ by index, of a few bits: `-1` to `1` in steps of `2^-bits`.
pub fn data<T: Scalar>(n: usize, salt: u64, bits: u32) -> Vec<T> {
    (0..n as u64)
        .map(|i| {
            let h = (i + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(salt.wrapping_mul(0xd1b5_4a32_d192_ed03));
            let h = (h ^ (h >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20;
            let steps = 1_i64 << bits;
            T::of(((h % (2 * steps as u64 + 1)) as i64 - steps) as f64 / steps as f64)
        })
        .collect()
}

/// Integers from `low` to `high`.
pub fn integers<T: Scalar>(n: usize, salt: u64, low: i64, high: i64) -> Vec<T> {
    let unit = data::<f64>(n, salt, 40);
    unit.iter()
        .map(|x| T::of((low as f64 + (x + 1.0) / 2.0 * (high - low + 1) as f64).floor().min(high as f64)))
        .collect()
}

/// Results against exact values: `|got - want| <= absolute + relative * |want|`.
pub fn close<T: Scalar>(what: &str, got: &[T], want: &[f64], absolute: f64, relative: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let g = g.value();
        assert!((g - w).abs() <= absolute + relative * w.abs(), "{what}: element {i} is {g}, not {w}");
    }
}

/// `A * B` in float64: `a` is `m x k`, `b` is `n x k` (`nt`) or `k x n`.
pub fn product<T: Scalar, U: Scalar>(a: &[T], b: &[U], m: usize, n: usize, k: usize, nt: bool) -> Vec<f64> {
    let at = |i: usize, j: usize, x: usize| {
        let b = if nt { b[j * k + x] } else { b[x * n + j] };
        a[i * k + x].value() * b.value()
    };
    (0..m * n).map(|ij| (0..k).map(|x| at(ij / n, ij % n, x)).sum()).collect()
}

/// A tensor map of rows of `columns` 16-bit elements, with boxes of so many rows and columns.
pub fn map(
    element: TensorType,
    address: u64,
    (rows, columns): (usize, usize),
    (box_rows, box_columns): (u32, u32),
    swizzle: Swizzle,
) -> Arg {
    let map = TensorMap {
        element,
        address,
        dims: vec![columns as u64, rows as u64],
        strides: vec![2 * columns as u64],
        tile: vec![box_columns, box_rows],
        element_strides: vec![1, 1],
        swizzle,
        fill_nan: false,
    };
    Arg::Bytes(map.encode().unwrap().to_vec())
}
