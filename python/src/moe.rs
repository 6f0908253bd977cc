//! Mixtures of experts, from the crate `warpweft-comm`.
#![allow(unsafe_code, reason = "streams and arrays of other libraries are addresses")]

use crate::comm::{Comm, raw};
use crate::error::Fault;
use crate::world::dtype;
use pyo3::prelude::*;
use warpweft_comm::moe::{self, Problem, RouteOperands, ScaledOperand};

/// Dispatch, products and combine of one problem.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Experts {
    inner: moe::Experts,
}

/// Elements and their scales, 0 if they have none.
fn scaled((elements, scales): (u64, u64)) -> ScaledOperand {
    ScaledOperand { elements, scales }
}

#[pymethods]
impl Experts {
    /// Makes the kernels. `shape` has the greatest number of tokens of a rank, and the numbers of
    /// columns of tokens and of results.
    #[new]
    fn new(
        py: Python<'_>,
        comm: &Comm,
        shape: (u64, u64, u64),
        experts: u32,
        choices: u32,
        code: u8,
        rows: Option<u64>,
    ) -> PyResult<Experts> {
        let (tokens, hidden, columns) = shape;
        let problem = Problem::new(tokens, hidden, experts, choices, dtype(code)?);
        let problem = Problem { columns, max_rows: rows, ..problem };
        let comm = comm.get()?;
        let made = py.detach(|| moe::Experts::new(&comm, problem));
        Ok(Experts { inner: made.map_err(Fault::from)? })
    }

    /// The number of rows in this rank's buffers.
    #[getter]
    fn rows(&self) -> u64 {
        self.inner.rows()
    }

    /// The address of the received tokens.
    #[getter]
    fn received(&self) -> u64 {
        self.inner.received()
    }

    /// The address where scales of tokens arrive, or 0.
    #[getter]
    fn received_scales(&self) -> u64 {
        self.inner.received_scales()
    }

    /// The address of the results.
    #[getter]
    fn results(&self) -> u64 {
        self.inner.results()
    }

    /// The address of the row offsets of the experts.
    #[getter]
    fn offsets(&self) -> u64 {
        self.inner.offsets()
    }

    /// Sends tokens to their experts. With matrices, it also multiplies them.
    fn dispatch(
        &self,
        py: Python<'_>,
        stream: u64,
        x: (u64, u64),
        routes: (u64, u64),
        b: Option<(u64, u64)>,
    ) -> PyResult<()> {
        let routes = RouteOperands { ids: routes.0, live: routes.1 };
        // SAFETY: the caller has checked the arrays and keeps them alive.
        let done =
            py.detach(|| unsafe { self.inner.dispatch(raw(stream), scaled(x), routes, b.map(scaled)) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Computes the whole layer; `sum` has gates and results.
    fn layer(
        &self,
        py: Python<'_>,
        stream: u64,
        x: (u64, u64),
        routes: (u64, u64),
        b: (u64, u64),
        sum: (u64, u64),
    ) -> PyResult<()> {
        let routes = RouteOperands { ids: routes.0, live: routes.1 };
        // SAFETY: the caller has checked the arrays and keeps them alive.
        let done = py.detach(|| unsafe { self.inner.layer(raw(stream), scaled(x), routes, scaled(b), sum) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Adds up the results of each token's experts.
    fn combine(&self, py: Python<'_>, stream: u64, routes: (u64, u64), gates: u64, out: u64) -> PyResult<()> {
        let routes = RouteOperands { ids: routes.0, live: routes.1 };
        // SAFETY: the caller has checked the arrays and keeps them alive.
        let done = py.detach(|| unsafe { self.inner.combine(raw(stream), routes, gates, out) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Waits for the stream, and raises an error if the routes of the last dispatch were wrong.
    fn check(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        // SAFETY: the stream is one of PyTorch's.
        let done = py.detach(|| unsafe { self.inner.check(raw(stream)) });
        Ok(done.map_err(Fault::from)?)
    }
}
