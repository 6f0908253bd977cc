//! Runs one kernel over slices of the host, for tests and short examples.

use crate::machine::{Arg, Config, Launch, Machine};
use crate::module::Module;
use crate::stats::Stats;
use crate::{PtxError, SimError};

/// Numbers that a kernel can read and write in a slice.
pub trait Number: Copy + sealed::Bytes {}

mod sealed {
    /// The bytes of a number in memory.
    pub trait Bytes {
        const SIZE: usize;
        fn put(self, out: &mut [u8]);
        fn get(&mut self, bytes: &[u8]);
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {}
        impl sealed::Bytes for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn get(&mut self, bytes: &[u8]) {
                if let Ok(bytes) = bytes.try_into() {
                    *self = <$ty>::from_le_bytes(bytes);
                }
            }
        }
    )*};
}

numbers!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// A slice that is copied to a PE before a launch and back after it.
trait Copied {
    fn bytes(&self) -> Vec<u8>;
    fn update(&mut self, bytes: &[u8]);
}

impl<T: Number> Copied for &mut [T] {
    fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.len() * T::SIZE];
        self.iter().zip(all.chunks_exact_mut(T::SIZE)).for_each(|(x, out)| x.put(out));
        all
    }

    fn update(&mut self, bytes: &[u8]) {
        self.iter_mut().zip(bytes.chunks_exact(T::SIZE)).for_each(|(x, bytes)| x.get(bytes));
    }
}

/// An argument of [`run`]: a number, or a slice, whose address the kernel gets.
pub struct HostArg<'a>(HostArgKind<'a>);

enum HostArgKind<'a> {
    Value(Arg),
    Slice(Box<dyn Copied + 'a>),
}

impl From<Arg> for HostArg<'_> {
    fn from(value: Arg) -> Self {
        HostArg(HostArgKind::Value(value))
    }
}

impl<'a, T: Number> From<&'a mut [T]> for HostArg<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        HostArg(HostArgKind::Slice(Box::new(slice)))
    }
}

impl<'a, T: Number, const N: usize> From<&'a mut [T; N]> for HostArg<'a> {
    fn from(slice: &'a mut [T; N]) -> Self {
        HostArg::from(&mut slice[..])
    }
}

macro_rules! values {
    ($($ty:ty => $arg:ident),*) => {$(
        impl From<$ty> for HostArg<'_> {
            fn from(value: $ty) -> Self {
                Arg::$arg(value).into()
            }
        }
    )*};
}

values!(u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64);

/// The reason why [`run`] has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The text cannot be read.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// The kernel cannot be launched, or cannot continue.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// The alignment of every slice in bytes.
const ALIGNMENT: u64 = 256;

/// Runs a kernel on one PE: its slices are copied there before the launch, and back after it.
///
/// `grid` is in CTAs and `block` in threads, each in x, y, z. The arguments come in the order of the kernel's parameters.
/// For several PEs, for checks and for the schedule, use a [`Machine`].
///
/// ```
/// let ptx = "
/// .version 8.0 .target sm_90 .address_size 64
/// .visible .entry scale(.param .u64 x, .param .f32 by) {
///     .reg .f32 %f<3>; .reg .b32 %r<2>; .reg .b64 %rd<4>;
///     ld.param.u64 %rd1, [x];
///     ld.param.f32 %f1, [by];
///     mov.u32 %r1, %tid.x;
///     mul.wide.u32 %rd2, %r1, 4;
///     add.s64 %rd3, %rd1, %rd2;
///     ld.global.f32 %f2, [%rd3];
///     mul.f32 %f2, %f2, %f1;
///     st.global.f32 [%rd3], %f2;
///     ret;
/// }";
/// let mut x = [1.0f32, 2.0, 3.0, 4.0];
/// weft_sim::run(ptx, "scale", [1, 1, 1], [4, 1, 1], [(&mut x).into(), 2.5f32.into()])?;
/// assert_eq!(x, [2.5, 5.0, 7.5, 10.0]);
/// # Ok::<(), weft_sim::RunError>(())
/// ```
///
/// # Errors
/// Fails if the text cannot be read, there is no such kernel, the arguments do not fit its parameters, or the
/// kernel cannot go on: it leaves its slices, divides by zero, or waits for what cannot come. The slices keep
/// what they held then.
pub fn run<'a>(
    ptx: &str,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    args: impl IntoIterator<Item = HostArg<'a>>,
) -> Result<Stats, RunError> {
    let module = Module::parse(ptx)?;
    let mut machine = Machine::new(Config::default())?;
    let mut slices = Vec::new();
    let mut values = Vec::new();
    for (number, HostArg(kind)) in args.into_iter().enumerate() {
        values.push(match kind {
            HostArgKind::Value(value) => value,
            HostArgKind::Slice(slice) => {
                let bytes = slice.bytes();
                let name = format!("argument {number}");
                let address = machine.alloc(0, &name, bytes.len().max(1) as u64, ALIGNMENT)?;
                machine.write(0, address, &bytes)?;
                slices.push((slice, bytes, address));
                Arg::U64(address)
            }
        });
    }
    let stats = machine.launch(&module, kernel, &[Launch::default().grid(grid).block(block).args(values)])?;
    for (slice, bytes, address) in &mut slices {
        machine.read(0, *address, bytes)?;
        slice.update(bytes);
    }
    Ok(stats)
}
