//! One-sided operations and collectives on streams.

use crate::error::Fault;
use crate::launch::Borrowed;
use crate::tensor::Tensor;
use crate::world::{Team, World};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use weft::runtime::cuda::BorrowedTensor;
use weft::runtime::{self, Compare, DType, Element, Reduce, Signal, SignalOp, Stream, SymmetricTensor};

/// The local operand of a copy.
enum Local {
    Symmetric(SymmetricTensor<u8>),
    Other(BorrowedTensor),
}

fn bytes(tensor: &Tensor) -> Result<SymmetricTensor<u8>, Fault> {
    Ok(SymmetricTensor::view(tensor.memory.buffer()?, tensor.offset, tensor.bytes()?)?)
}

fn local(given: &Bound<'_, PyAny>) -> PyResult<Local> {
    if let Ok(tensor) = given.cast::<Tensor>() {
        return Ok(Local::Symmetric(bytes(tensor.get())?));
    }
    if let Ok(array) = given.cast::<Borrowed>() {
        return Ok(Local::Other(array.get().tensor.clone()));
    }
    Err(PyTypeError::new_err("the local side of a copy must be a tensor, or an array on this PE's GPU"))
}

fn signal(tensor: &Tensor) -> Result<Signal, Fault> {
    if tensor.dtype.bytes() != 8 {
        let message = format!("a signal must be a u64, but the tensor has {} elements", tensor.dtype);
        return Err(Fault::new("R0307", message, "allocate it with dtype u64"));
    }
    let word = SymmetricTensor::<u64>::view(tensor.memory.buffer()?, tensor.offset, 1)?;
    Ok(Signal::of(&word, 0)?)
}

const OPS: [(&str, SignalOp); 2] = [("set", SignalOp::Set), ("add", SignalOp::Add)];

const COMPARES: [(&str, Compare); 6] = [
    ("eq", Compare::Eq),
    ("ne", Compare::Ne),
    ("gt", Compare::Gt),
    ("le", Compare::Le),
    ("lt", Compare::Lt),
    ("ge", Compare::Ge),
];

/// An update of a signal: the signal, `set` or `add`, the value.
type Update<'py> = (PyRef<'py, Tensor>, String, u64);

/// Copies `source` to `dest` on a PE, and then updates a signal there, if one is given.
#[pyfunction]
pub fn put(
    py: Python<'_>,
    world: &World,
    dest: &Tensor,
    source: &Bound<'_, PyAny>,
    pe: u32,
    stream: Option<u64>,
    update: Option<Update<'_>>,
) -> PyResult<()> {
    let (dest, source, stream) = (bytes(dest)?, local(source)?, world.stream(stream)?);
    let update = match &update {
        Some((tensor, op, value)) => {
            Some((signal(tensor)?, crate::kernel::word("the operation on a signal", op, &OPS)?, *value))
        }
        None => None,
    };
    let w = &world.inner;
    let done = py.detach(|| match (&source, &update) {
        (Local::Symmetric(s), None) => w.put(&dest, s, pe, &stream),
        (Local::Other(s), None) => w.put(&dest, s, pe, &stream),
        (Local::Symmetric(s), Some((sig, op, v))) => w.put_signal(&dest, s, (sig, *op, *v), pe, &stream),
        (Local::Other(s), Some((sig, op, v))) => w.put_signal(&dest, s, (sig, *op, *v), pe, &stream),
    });
    Ok(done.map_err(Fault::from)?)
}

/// Copies `source` from a PE to `dest`.
#[pyfunction]
pub fn get(
    py: Python<'_>,
    world: &World,
    dest: &Bound<'_, PyAny>,
    source: &Tensor,
    pe: u32,
    stream: Option<u64>,
) -> PyResult<()> {
    let (dest, source, stream) = (local(dest)?, bytes(source)?, world.stream(stream)?);
    let done = py.detach(|| match &dest {
        Local::Symmetric(dest) => world.inner.get(dest, &source, pe, &stream),
        Local::Other(dest) => world.inner.get(dest, &source, pe, &stream),
    });
    Ok(done.map_err(Fault::from)?)
}

/// Updates a signal of a PE.
#[pyfunction]
pub fn signal_op(
    py: Python<'_>,
    world: &World,
    sig: &Tensor,
    op: &str,
    value: u64,
    pe: u32,
    stream: Option<u64>,
) -> PyResult<()> {
    let op = crate::kernel::word("the operation on a signal", op, &OPS)?;
    let (sig, stream) = (signal(sig)?, world.stream(stream)?);
    Ok(py.detach(|| world.inner.signal_op(&sig, op, value, pe, &stream)).map_err(Fault::from)?)
}

/// Makes a stream wait for a signal of this PE.
#[pyfunction]
pub fn signal_wait(
    py: Python<'_>,
    world: &World,
    sig: &Tensor,
    compare: &str,
    value: u64,
    stream: Option<u64>,
) -> PyResult<()> {
    let compare = crate::kernel::word("the comparison", compare, &COMPARES)?;
    let (sig, stream) = (signal(sig)?, world.stream(stream)?);
    Ok(py.detach(|| world.inner.signal_wait(&sig, compare, value, &stream)).map_err(Fault::from)?)
}

/// Waits until this PE's operations are complete at their targets.
#[pyfunction]
pub fn quiet(py: Python<'_>, world: &World, stream: Option<u64>) -> PyResult<()> {
    let stream = world.stream(stream)?;
    Ok(py.detach(|| world.inner.quiet(&stream)).map_err(Fault::from)?)
}

/// A barrier of a team on a stream; `sync` does not wait for pending operations.
#[pyfunction]
pub fn team_barrier(
    py: Python<'_>,
    world: &World,
    team: &Team,
    sync: bool,
    stream: Option<u64>,
) -> PyResult<()> {
    let stream = world.stream(stream)?;
    let done = py.detach(|| if sync { team.inner.sync(&stream) } else { team.inner.barrier(&stream) });
    Ok(done.map_err(Fault::from)?)
}

/// Runs a collective of a team: `reduce`, `reduce_scatter`, `fcollect`, `alltoall`, `broadcast`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python's call has them")]
pub fn collective(
    py: Python<'_>,
    world: &World,
    team: &Team,
    name: &str,
    op: &str,
    dest: &Tensor,
    source: &Tensor,
    root: u32,
    stream: Option<u64>,
) -> PyResult<()> {
    let ops: Vec<(&str, Reduce)> = Reduce::ALL.iter().map(|op| (op.name(), *op)).collect();
    let op = crate::kernel::word("the reduction", op, &ops)?;
    let stream = world.stream(stream)?;
    if dest.dtype != source.dtype {
        let message =
            format!("the destination has {} elements, but the source has {}", dest.dtype, source.dtype);
        return Err(Fault::new(
            "R0307",
            message,
            "both sides of a collective must have the same element type",
        )
        .into());
    }
    let call = Call { team: &team.inner, name, op, root, stream: &stream };
    macro_rules! by_type {
        ($($variant:ident: $ty:ty),*) => {
            match dest.dtype {
                $(DType::$variant => py.detach(|| call.run::<$ty>(dest, source)),)*
            }
        };
    }
    let done = by_type!(
        Bool: u8, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64,
        F16: half::f16, BF16: half::bf16, F32: f32, F64: f64, E4M3: u8, E5M2: u8
    );
    Ok(done?)
}

struct Call<'a> {
    team: &'a runtime::Team,
    name: &'a str,
    op: Reduce,
    root: u32,
    stream: &'a Stream,
}

impl Call<'_> {
    fn run<T: Element>(&self, dest: &Tensor, source: &Tensor) -> Result<(), Fault> {
        let of = |tensor: &Tensor| -> Result<SymmetricTensor<T>, Fault> {
            let elements = tensor.bytes()? / size_of::<T>();
            Ok(SymmetricTensor::view(tensor.memory.buffer()?, tensor.offset, elements)?)
        };
        let (dest, source) = (of(dest)?, of(source)?);
        let Call { team, name, op, root, stream } = self;
        let done = match *name {
            "reduce" => team.reduce(*op, &dest, &source, stream),
            "reduce_scatter" => team.reduce_scatter(*op, &dest, &source, stream),
            "fcollect" => team.fcollect(&dest, &source, stream),
            "alltoall" => team.alltoall(&dest, &source, stream),
            "broadcast" => team.broadcast(&dest, &source, *root, stream),
            other => return Err(Fault::usage(format!("there is no collective {other}"), "")),
        };
        Ok(done?)
    }
}
