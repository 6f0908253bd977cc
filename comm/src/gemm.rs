//! Matrix products with communication in the same launch.
#![allow(unsafe_code, reason = "callers vouch for streams and addresses")]

use crate::comm::{CallOperand, count};
use crate::{Comm, DType, Error, RawStream};
use std::fmt;
use std::sync::Arc;
use weft::collective::Flat;
use weft::gemm::{Fused, FusedOperands};
use weft::runtime::IntoLayout;
use weft::runtime::launch::AsArgument;
use weft::runtime::memory::AnyTensor;

pub use weft::gemm::{Activation, Epilogue, Form, Problem, Scales, Shape};

/// A product of the ranks' matrices in one launch, for one problem. Calls of one object follow each
/// other on one stream at a time.
pub struct Matmul {
    comm: Arc<Comm>,
    fused: Fused,
    form: Form,
    epilogue: Epilogue,
    /// The rows of A of all ranks, for an all-gather.
    rows: Option<AnyTensor>,
    /// The scales of these rows.
    scales: Option<AnyTensor>,
    /// The sum, if other ranks write to it.
    sum: Option<AnyTensor>,
}

/// The addresses of a call. Operands that the product does not read are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MatmulOperands {
    /// The matrix A with contiguous rows. An all-gather reads it at [`Matmul::own_rows`] instead.
    pub a: u64,
    /// The matrix B with the layout that the problem states.
    pub b: u64,
    /// The result with contiguous rows. A call does not write to it if [`Matmul::sum`] has the
    /// result.
    pub d: u64,
    /// The scales of A. An all-gather reads them at [`Matmul::own_scales`] instead.
    pub scale_a: Option<u64>,
    /// Scales of the matrix B.
    pub scale_b: Option<u64>,
    /// The bias of each column.
    pub bias: Option<u64>,
    /// The matrix that is added to the result.
    pub residual: Option<u64>,
    /// The number that the result is divided by.
    pub scale: Option<u64>,
    /// The scales of rows of the result, which a call writes.
    pub row_scales: Option<u64>,
}

impl Matmul {
    /// Compiles the plan that is likely to be the fastest, and allocates the memory for its
    /// launches. The problem's `m` counts the rows of all ranks. This call is *collective*.
    ///
    /// # Errors
    /// Fails for a problem that no kernel computes, if the ranks request different problems
    /// (R0505), or if there is not enough memory (R0302).
    pub fn new(comm: &Arc<Comm>, form: Form, problem: Problem, epilogue: Epilogue) -> Result<Matmul, Error> {
        let world = &comm.world;
        let fused = Fused::auto_with(world, world.team(), form, problem, epilogue)?;
        Matmul::with(comm, fused, form, epilogue)
    }

    /// Makes a product like [`new`](Matmul::new), of ranks that have different numbers of rows: all
    /// have memory for `max_rows`, and [`set_rows`](Matmul::set_rows) changes their numbers, which
    /// are `max_rows` at first. The problem's `m` does not count. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`new`](Matmul::new) fails, and for an allreduce (R0505).
    pub fn uneven(
        comm: &Arc<Comm>,
        form: Form,
        problem: Problem,
        epilogue: Epilogue,
        max_rows: u64,
    ) -> Result<Matmul, Error> {
        let (world, rows) = (&comm.world, vec![max_rows; comm.size() as usize]);
        let m = max_rows.saturating_mul(comm.size().into());
        let problem = Problem { shape: Shape { m, ..problem.shape }, ..problem };
        let fused = Fused::auto_uneven(world, world.team(), form, problem, epilogue, &rows)?;
        Matmul::with(comm, fused, form, epilogue)
    }

    /// Allocates memory that ranks read from each other, and write to each other.
    fn with(comm: &Arc<Comm>, fused: Fused, form: Form, epilogue: Epilogue) -> Result<Matmul, Error> {
        let (world, problem) = (&comm.world, *fused.problem());
        let ranks = u64::from(comm.size());
        let part = problem.shape.m.div_ceil(ranks);
        let symmetric = |dtype: DType, n: u64| -> Result<AnyTensor, Error> {
            let buffer = world.buffer(count(n).saturating_mul(dtype.bytes() as usize))?;
            Ok(AnyTensor::new(buffer, dtype, count(n).into_layout()?)?)
        };
        let gathers = form == Form::AllGather;
        let rows = gathers.then(|| symmetric(problem.dtype, part * ranks * problem.shape.k)).transpose()?;
        let each = if gathers { epilogue.scales.of_a(part, problem.shape.k) } else { 0 };
        let scales = (each > 0).then(|| symmetric(DType::F32, each * ranks)).transpose()?;
        let written = form != Form::AllGather && fused.choice().is_result_symmetric(form);
        let of_all = rows_of_result(form, problem.shape.m, part, ranks);
        let columns = epilogue.columns(problem.shape.n);
        let sum = written.then(|| symmetric(problem.out, of_all * columns)).transpose()?;
        Ok(Matmul { comm: comm.clone(), fused, form, epilogue, rows, scales, sum })
    }

    /// The rows of each rank, if the product was made for different numbers of them.
    pub fn rows_of_ranks(&self) -> Option<&[u64]> {
        self.fused.rows()
    }

    /// Changes the rows of each rank for calls that follow on the stream. This call is
    /// *collective*.
    ///
    /// # Errors
    /// Fails for a rank with more rows than there is memory for, if ranks pass different rows, and
    /// for a product that was not made by [`uneven`](Matmul::uneven) (R0505).
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream.
    pub unsafe fn set_rows(&mut self, stream: RawStream, rows: &[u64]) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { self.comm.stream(stream)? };
        Ok(self.fused.set_rows(&self.comm.world, &stream, rows)?)
    }

    /// The plan of the product, as text.
    pub fn plan(&self) -> String {
        self.fused.choice().text(self.form)
    }

    /// The address of the rows of all ranks after an all-gather. They are valid until the next
    /// call.
    pub fn all_rows(&self) -> Option<u64> {
        self.rows.as_ref().map(AnyTensor::address)
    }

    /// The address at which an all-gather reads this rank's rows of A. The caller writes them there
    /// before each call.
    pub fn own_rows(&self) -> Option<u64> {
        self.own(&self.rows)
    }

    /// The address at which an all-gather reads this rank's scales of A.
    pub fn own_scales(&self) -> Option<u64> {
        self.own(&self.scales)
    }

    /// The address of the result, if it is not in the caller's memory. It is valid until the next
    /// call.
    pub fn sum(&self) -> Option<u64> {
        self.sum.as_ref().map(AnyTensor::address)
    }

    /// This rank's part of memory that has an equal part for each rank.
    fn own(&self, all: &Option<AnyTensor>) -> Option<u64> {
        let part = |t: &AnyTensor| t.buffer().bytes() as u64 / u64::from(self.comm.size());
        all.as_ref().map(|t| t.address() + u64::from(self.comm.rank()) * part(t))
    }

    /// Launches the product on a stream.
    ///
    /// # Errors
    /// Fails for an address that is not a multiple of 16 ([`Error::Unaligned`]), and if an operand
    /// of the epilogue is missing (R0505).
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream. The operands
    /// must have the types and extents of the problem, and the device must be able to access them
    /// until the stream has passed the call.
    pub unsafe fn run(&self, stream: RawStream, operands: &MatmulOperands) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { self.comm.stream(stream)? };
        let problem = self.fused.problem();
        let Problem { shape: Shape { m, n, k }, dtype, out, .. } = *problem;
        let own = self.fused.rows().and_then(|rows| rows.get(self.comm.rank() as usize));
        let part = own.copied().unwrap_or(m.div_ceil(u64::from(self.comm.size())));
        let rows = rows_of_result(self.form, m, part, self.comm.size().into());
        let columns = self.epilogue.columns(n);
        // SAFETY: the caller vouches for the addresses.
        let side = |address, n, dtype| unsafe { self.comm.side(address, count(n), dtype) };
        let maybe =
            |address: Option<u64>, n, dtype| address.map(|address| side(address, n, dtype)).transpose();
        let a = if self.rows.is_some() { None } else { Some(side(operands.a, m * k, dtype)?) };
        let d = if self.sum.is_some() { None } else { Some(side(operands.d, rows * columns, out)?) };
        let b = side(operands.b, n * k, dtype)?;
        let scale_a = if self.scales.is_some() { None } else { operands.scale_a };
        let scale_a = maybe(scale_a, self.epilogue.scales.of_a(m, k), DType::F32)?;
        let scale_b = maybe(operands.scale_b, self.epilogue.scales.of_b(n, k), DType::F32)?;
        let more = Epilogue::dtype(problem);
        let bias = maybe(operands.bias, n, more)?;
        let added = if self.form == Form::AllToAll { m } else { rows };
        let residual = maybe(operands.residual, added * columns, more)?;
        let scale = maybe(operands.scale, 1, DType::F32)?;
        let row_scales = maybe(operands.row_scales, self.epilogue.scales_of_rows(rows, n), DType::F32)?;
        let symmetric = [&self.rows, &self.sum, &self.scales].map(|t| t.as_ref().map(|t| Flat(t)));
        let [of_rows, of_sum, of_scales] = &symmetric;
        let missing = || weft::runtime::Error::new(weft::runtime::error::GEMM, "an operand is missing");
        let x = FusedOperands {
            a: either(of_rows, &a).ok_or_else(missing)?,
            b: &b,
            d: either(of_sum, &d).ok_or_else(missing)?,
            scale_a: either(of_scales, &scale_a),
            scale_b: scale_b.as_ref().map(|side| side as &dyn AsArgument),
            bias: bias.as_ref().map(|side| side as &dyn AsArgument),
            residual: residual.as_ref().map(|side| side as &dyn AsArgument),
            scale: scale.as_ref().map(|side| side as &dyn AsArgument),
            row_scales: row_scales.as_ref().map(|side| side as &dyn AsArgument),
        };
        Ok(self.fused.launch_with(&stream, &x)?)
    }
}

/// The rows of a rank's result, of which each rank has a part in an all-to-all.
fn rows_of_result(form: Form, m: u64, part: u64, ranks: u64) -> u64 {
    match form {
        Form::ReduceScatter => part,
        Form::AllToAll => part * ranks,
        Form::AllGather | Form::AllReduce => m,
    }
}

/// Memory of this object if it has any, and otherwise the caller's.
fn either<'a>(own: &'a Option<Flat<'_>>, given: &'a Option<CallOperand>) -> Option<&'a dyn AsArgument> {
    let own = own.as_ref().map(|own| own as &dyn AsArgument);
    own.or_else(|| given.as_ref().map(|side| side as &dyn AsArgument))
}

impl fmt::Debug for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matmul({:?}, {})", self.form, self.fused.problem())
    }
}
