//! Products fused with communication, from the crate `warpweft-comm`.
#![allow(unsafe_code, reason = "streams and arrays of other libraries are addresses")]

use crate::comm::{Comm, raw};
use crate::error::Fault;
use crate::world::dtype;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpweft_comm::gemm::{self, Activation, Epilogue, Form, MatmulOperands, Problem, Scales, Shape};
use weft::gemm::Major;

/// The forms, by their names in Python.
const FORMS: [(&str, Form); 3] = [
    ("all_gather_matmul", Form::AllGather),
    ("matmul_reduce_scatter", Form::ReduceScatter),
    ("matmul_all_reduce", Form::AllReduce),
];

/// The kinds of scales and the activations, by name.
const SCALES: [(&str, Scales); 4] = [
    ("none", Scales::None),
    ("matrices", Scales::Matrices),
    ("rows", Scales::Rows),
    ("blocks", Scales::Blocks),
];
const ACTIVATIONS: [(&str, Activation); 5] = [
    ("none", Activation::None),
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("gelu_tanh", Activation::GeluTanh),
    ("silu", Activation::Silu),
];

fn named<T: Copy>(all: &[(&str, T)], name: &str, what: &str) -> Result<T, Fault> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let known: Vec<_> = all.iter().map(|(known, _)| *known).collect();
    found.ok_or_else(|| Fault::usage(format!("there is no {what} {name:?}"), known.join(", ")))
}

/// The addresses of scales of A and of B, of bias, residual and divisor.
type Others = (Option<u64>, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

/// A product of matrices that are distributed over the ranks.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Matmul {
    inner: Mutex<gemm::Matmul>,
}

impl Matmul {
    fn get(&self) -> MutexGuard<'_, gemm::Matmul> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Matmul {
    /// Makes a product. `types` are the codes of operands and results, and `b_rows` says that B is
    /// given as (n, k) with contiguous rows. `epilogue` has the scales, the activation, and whether
    /// there are gates, a bias, a residual, and a divisor. With `max_rows`, ranks have different
    /// numbers of rows, up to this one, which `set_rows` changes.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by position")]
    fn new(
        py: Python<'_>,
        comm: &Comm,
        form: &str,
        shape: (u64, u64, u64),
        types: (u8, u8),
        b_rows: bool,
        epilogue: (String, String, bool, bool, bool, bool),
        max_rows: Option<u64>,
    ) -> PyResult<Matmul> {
        let form = named(&FORMS, form, "form")?;
        let (scales, activation, gated, bias, residual, divide) = epilogue;
        let scales = named(&SCALES, &scales, "kind of scales")?;
        let activation = named(&ACTIVATIONS, &activation, "activation")?;
        let epilogue = Epilogue { scales, bias, activation, gated, residual, divide, ..Epilogue::default() };
        let (m, n, k) = shape;
        let problem = Problem {
            out: dtype(types.1)?,
            b: if b_rows { Major::Row } else { Major::Column },
            ..Problem::new(Shape::new(m, n, k), dtype(types.0)?)
        };
        let comm = comm.get()?;
        let made = py.detach(|| match max_rows {
            Some(rows) => gemm::Matmul::uneven(&comm, form, problem, epilogue, rows),
            None => gemm::Matmul::new(&comm, form, problem, epilogue),
        });
        Ok(Matmul { inner: Mutex::new(made.map_err(Fault::from)?) })
    }

    /// The plan by which the product is computed.
    #[getter]
    fn plan(&self) -> String {
        self.get().plan()
    }

    /// The address of the rows gathered from all ranks.
    #[getter]
    fn all_rows(&self) -> Option<u64> {
        self.get().all_rows()
    }

    /// The address from which this rank's rows are read.
    #[getter]
    fn own_rows(&self) -> Option<u64> {
        self.get().own_rows()
    }

    /// The address from which this rank's row scales are read.
    #[getter]
    fn own_scales(&self) -> Option<u64> {
        self.get().own_scales()
    }

    /// The address of the result, if it is not in the caller's memory.
    #[getter]
    fn sum(&self) -> Option<u64> {
        self.get().sum()
    }

    /// The rows of each rank, if it was made with `max_rows`.
    #[getter]
    fn rows(&self) -> Option<Vec<u64>> {
        self.get().rows_of_ranks().map(<[u64]>::to_vec)
    }

    /// Changes the rows of each rank, for calls that follow on the stream. All ranks call it.
    fn set_rows(&self, py: Python<'_>, stream: u64, rows: Vec<u64>) -> PyResult<()> {
        // SAFETY: the stream is one of PyTorch's.
        let done = py.detach(|| unsafe { self.get().set_rows(raw(stream), &rows) });
        Ok(done.map_err(Fault::from)?)
    }

    /// Puts the product on a stream. `matrices` are the addresses of A, B and D, and `others` those
    /// of the epilogue's inputs.
    fn run(&self, py: Python<'_>, stream: u64, matrices: (u64, u64, u64), others: Others) -> PyResult<()> {
        let (a, b, d) = matrices;
        let (scale_a, scale_b, bias, residual, scale) = others;
        let operands = MatmulOperands { a, b, d, scale_a, scale_b, bias, residual, scale, row_scales: None };
        // SAFETY: the caller has checked the arrays and keeps them alive.
        let done = py.detach(|| unsafe { self.get().run(raw(stream), &operands) });
        Ok(done.map_err(Fault::from)?)
    }
}
