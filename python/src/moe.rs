//! Mixtures of experts, of the crate `warpweft-comm`.
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
    /// `shape` has the most tokens of a rank, and the columns of tokens and of results.
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
        let problem = Problem { columns, most_rows: rows, ..problem };
        let comm = comm.get()?;
        let made = py.detach(|| moe::Experts::new(&comm, problem));
        Ok(Experts { inner: made.map_err(Fault::from)? })
    }

    /// Rows that this rank has room for.
    #[getter]
    fn rows(&self) -> u64 {
        self.inner.rows()
    }

    /// Where tokens arrive.
    #[getter]
    fn received(&self) -> u64 {
        self.inner.received()
    }

    /// Where scales of tokens arrive, or 0.
    #[getter]
    fn received_scales(&self) -> u64 {
        self.inner.received_scales()
    }

    /// Where results are.
    #[getter]
    fn results(&self) -> u64 {
        self.inner.results()
    }

    /// Where it is written at which row each expert begins.
    #[getter]
    fn offsets(&self) -> u64 {
        self.inner.offsets()
    }

    /// Sends tokens; with matrices, it multiplies them.
    fn dispatch(
        &self,
        py: Python<'_>,
        stream: u64,
        x: (u64, u64),
        routes: (u64, u64),
        b: Option<(u64, u64)>,
    ) -> PyResult<()> {
        let routes = RouteOperands { ids: routes.0, live: routes.1 };
        // SAFETY: the caller has checked the arrays and keeps them.
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
        // SAFETY: the caller has checked the arrays and keeps them.
        let done = py.detach(|| unsafe { self.inner.layer(raw(stream), scaled(x), routes, scaled(b), sum) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Adds results up.
    fn combine(&self, py: Python<'_>, stream: u64, routes: (u64, u64), gates: u64, out: u64) -> PyResult<()> {
        let routes = RouteOperands { ids: routes.0, live: routes.1 };
        // SAFETY: the caller has checked the arrays and keeps them.
        let done = py.detach(|| unsafe { self.inner.combine(raw(stream), routes, gates, out) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Waits, and raises what was wrong with the routes of the newest dispatch.
    fn check(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        // SAFETY: the stream is PyTorch's.
        let done = py.detach(|| unsafe { self.inner.check(raw(stream)) });
        Ok(done.map_err(Fault::from)?)
    }
}
