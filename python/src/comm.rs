//! The communicator of the crate `warpweft-comm`.
#![allow(unsafe_code, reason = "streams and arrays of other libraries are addresses")]

use crate::error::Fault;
use crate::world::{dtype, seconds};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};
use warpweft_comm::{self as comm, Id, NormForm, Operands, Options, RawStream, Reduce, Sums};

/// random bytes that identify a communicator or a world.
#[pyfunction]
pub fn random_id(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    Ok(PyBytes::new(py, &Id::random().map_err(Fault::from)?.0))
}

/// A stream by its handle.
pub fn raw(stream: u64) -> RawStream {
    stream as usize as RawStream
}

/// Ranks of one host.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Comm {
    inner: Mutex<Option<Arc<comm::Comm>>>,
}

impl Comm {
    /// The communicator, unless it has been closed.
    ///
    /// # Errors
    ///
    /// Fails if this communicator has been closed (W0004).
    pub fn get(&self) -> Result<Arc<comm::Comm>, Fault> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| {
            Fault::new("W0004", "this communicator has been closed", "create a new communicator")
        })
    }

    fn call(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&comm::Comm) -> Result<(), comm::Error> + Send,
    ) -> PyResult<()> {
        let comm = self.get()?;
        Ok(py.detach(|| what(&comm)).map_err(Fault::from)?)
    }
}

#[pymethods]
impl Comm {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python's call has them")]
    fn new(
        py: Python<'_>,
        rank: u32,
        size: u32,
        id: Vec<u8>,
        device: u32,
        max_bytes: usize,
        timeout: f64,
        share_gpu: bool,
        max_ctas: Option<u32>,
        sums: &str,
    ) -> PyResult<Comm> {
        let id: [u8; 128] = id.try_into().map_err(|_| {
            Fault::usage("the id does not have 128 bytes", "pass the result of random_id() of one rank")
        })?;
        let timeout = seconds("timeout", timeout)?;
        let sums = Sums::parse(sums)
            .map_err(|why| Fault::usage(why, "pass sums=\"ordinary\" or another of these"))?;
        let options = Options::default()
            .device(Some(device))
            .max_bytes(max_bytes)
            .timeout(timeout)
            .max_ctas(max_ctas)
            .share_gpu(share_gpu)
            .sums(sums);
        let made = py.detach(|| comm::Comm::new(rank, size, &Id(id), &options)).map_err(Fault::from)?;
        Ok(Comm { inner: Mutex::new(Some(Arc::new(made))) })
    }

    /// The first rank that has died, and the reason.
    fn died(&self) -> PyResult<Option<(u32, String)>> {
        Ok(self.get()?.died())
    }

    /// Whether this communicator supports an allreduce of `count` elements.
    fn takes(&self, count: usize, code: u8) -> PyResult<bool> {
        Ok(self.get()?.should_all_reduce(count, dtype(code)?))
    }

    /// Reduces `count` elements at `src` over all ranks to `dst`, with the operation of that number.
    #[expect(clippy::too_many_arguments, reason = "Python's call has them")]
    fn all_reduce(
        &self,
        py: Python<'_>,
        stream: u64,
        src: u64,
        dst: u64,
        count: usize,
        code: u8,
        op: usize,
    ) -> PyResult<()> {
        let dtype = dtype(code)?;
        let op =
            *Reduce::ALL.get(op).ok_or_else(|| Fault::usage(format!("there is no reduction {op}"), ""))?;
        // SAFETY: the caller has checked both arrays and keeps them alive.
        self.call(py, |comm| unsafe { comm.all_reduce_with(op, raw(stream), (src, dst), count, dtype) })
    }

    /// Gathers `count` elements of each rank to `dst`.
    fn all_gather(
        &self,
        py: Python<'_>,
        stream: u64,
        src: u64,
        dst: u64,
        count: usize,
        code: u8,
    ) -> PyResult<()> {
        let dtype = dtype(code)?;
        // SAFETY: as for `all_reduce`.
        self.call(py, |comm| unsafe { comm.all_gather(raw(stream), src, dst, count, dtype) })
    }

    /// Reduces over all ranks, and writes this rank's part of the sum, of `count` elements, to
    /// `dst`.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        stream: u64,
        src: u64,
        dst: u64,
        count: usize,
        code: u8,
    ) -> PyResult<()> {
        let dtype = dtype(code)?;
        // SAFETY: as for `all_reduce`.
        self.call(py, |comm| unsafe { comm.reduce_scatter(raw(stream), src, dst, count, dtype) })
    }

    /// Allocates zeroed memory on all ranks. Collective.
    fn alloc(&self, py: Python<'_>, bytes: usize) -> PyResult<Buffer> {
        let comm = self.get()?;
        let made = py.detach(|| comm.alloc(bytes)).map_err(Fault::from)?;
        made.free_later();
        Ok(Buffer { inner: made, comm })
    }

    /// Registers memory of the caller as symmetric. Collective.
    fn register(&self, py: Python<'_>, address: u64, bytes: usize) -> PyResult<Buffer> {
        let comm = self.get()?;
        // SAFETY: the caller keeps the memory until the buffer is dropped on all ranks.
        let made = py.detach(|| unsafe { comm.register(address, bytes) }).map_err(Fault::from)?;
        made.free_later();
        Ok(Buffer { inner: made, comm })
    }

    /// Waits on the host until all ranks have arrived.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, comm::Comm::barrier)
    }

    /// Closes the communicator. Collective: its resources are released when all ranks have closed
    /// theirs and no buffer is left.
    fn close(&self, py: Python<'_>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(inner));
    }
}

/// Memory that all ranks have allocated or registered.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Buffer {
    inner: comm::Buffer,
    comm: Arc<comm::Comm>,
}

#[pymethods]
impl Buffer {
    #[getter]
    fn address(&self) -> u64 {
        self.inner.address()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.bytes()
    }

    /// The address at which loads and stores access another rank's memory.
    fn peer_address(&self, py: Python<'_>, rank: u32) -> PyResult<u64> {
        Ok(py.detach(|| self.inner.peer_address(rank)).map_err(Fault::from)?)
    }

    /// The address at which multimem instructions access the memory of all ranks.
    #[getter]
    fn multicast_address(&self) -> Option<u64> {
        self.inner.multicast_address(&self.comm)
    }
}

/// The form of a norm: the codes of hidden states and results, the elements that share a scale (0 for
/// one scale for all), whether the norm is written beside them and is LayerNorm, and the multiple of
/// rows that columns of scales are padded to (0 for rows of scales).
type FormCodes = (u8, u8, u32, bool, bool, u32);

/// The addresses of bias, scales and norm.
type Others = (Option<u64>, Option<u64>, Option<u64>);

/// Allreduce, residual add and RMSNorm or LayerNorm in one call.
#[pyclass(frozen, module = "warpweft._native")]
pub struct AddRmsNorm {
    inner: comm::AddRmsNorm,
}

#[pymethods]
impl AddRmsNorm {
    #[new]
    fn new(
        py: Python<'_>,
        comm: &Comm,
        hidden: usize,
        form: FormCodes,
        max_tokens: usize,
    ) -> PyResult<AddRmsNorm> {
        let (code, out, each, both, layer, columns) = form;
        // More kernels compute one scale for each token than scales of groups.
        let per_token = each as usize == hidden;
        let group = if per_token { 0 } else { each };
        let (dtype, out) = (dtype(code)?, dtype(out)?);
        let form = NormForm { dtype, out, per_token, both, group, layer, columns };
        let comm = comm.get()?;
        let made = py.detach(|| comm::AddRmsNorm::with_form(&comm, hidden, form, max_tokens));
        Ok(AddRmsNorm { inner: made.map_err(Fault::from)? })
    }

    /// Runs the operation. `operands` are the addresses of input, residual, weight and out.
    fn run(
        &self,
        py: Python<'_>,
        stream: u64,
        tokens: usize,
        operands: (u64, u64, u64, u64),
        others: Others,
        eps: f32,
    ) -> PyResult<()> {
        let ((input, residual, weight, out), (bias, scale, norm)) = (operands, others);
        let operands = Operands { input, residual, weight, out, bias, scale, norm };
        // SAFETY: the caller has checked the arrays and keeps them alive.
        let done = py.detach(|| unsafe { self.inner.run(raw(stream), tokens, &operands, eps) });
        Ok(done.map_err(Fault::from)?)
    }
}
