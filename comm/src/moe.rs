//! Mixtures of experts that are distributed over the ranks.
#![allow(unsafe_code, reason = "callers vouch for streams and addresses")]

use crate::comm::count;
use crate::{Comm, DType, Error, RawStream};
use std::fmt;
use std::sync::Arc;
use weft::moe::{Moe, Plan, Routes};

pub use weft::moe::Problem;

/// Dispatch, products and combine for one problem. Calls of one object follow each other on one
/// stream at a time.
pub struct Experts {
    comm: Arc<Comm>,
    moe: Moe,
}

/// The addresses of the experts that a rank's tokens are routed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteOperands {
    /// The experts as i32, with modes (token, choice).
    pub ids: u64,
    /// The number of tokens, a single i32.
    pub live: u64,
}

/// Addresses of elements and of their scales. The scales are f32, one for each token or one for each
/// column of each expert's results. Elements of 16 bits have no scales, and the address is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScaledOperand {
    /// The address of the elements.
    pub elements: u64,
    /// The address of their scales, or 0.
    pub scales: u64,
}

impl Experts {
    /// Compiles the kernels and allocates the memory for launches. This call is *collective*.
    ///
    /// # Errors
    /// Fails for a problem that the kernels do not support, if the ranks request different problems
    /// (R0505), or if there is not enough memory (R0302).
    pub fn new(comm: &Arc<Comm>, problem: Problem) -> Result<Experts, Error> {
        let moe = Moe::new(&comm.world, comm.world.team(), problem, Plan::of(&problem))?;
        Ok(Experts { comm: comm.clone(), moe })
    }

    /// The number of rows for which this rank has memory.
    pub fn rows(&self) -> u64 {
        self.moe.problem().rows(self.comm.size())
    }

    /// The address at which tokens arrive, as rows of the problem's `hidden` elements. They are
    /// valid until the next dispatch.
    pub fn received(&self) -> u64 {
        self.moe.received().address()
    }

    /// The address of the scales of arriving tokens, one f32 for each row, or 0 if tokens have none.
    pub fn received_scales(&self) -> u64 {
        self.moe.received_scales().map_or(0, |scales| scales.address())
    }

    /// The address of the results of the experts, each in the row of its token.
    pub fn results(&self) -> u64 {
        self.moe.results().address()
    }

    /// The address of the row at which each expert begins, as i32.
    pub fn offsets(&self) -> u64 {
        self.moe.offsets().address()
    }

    /// Sends tokens to their experts. With `b`, the matrices of this rank's experts, it also
    /// multiplies them in the same launch.
    ///
    /// # Errors
    /// Fails for an address that is not a multiple of 16 ([`Error::Unaligned`]), and where
    /// [`Moe::dispatch`] fails.
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream. The operands
    /// must have the types and extents of the problem, and the device must be able to access them
    /// until the stream has passed the call.
    pub unsafe fn dispatch(
        &self,
        stream: RawStream,
        x: ScaledOperand,
        routes: RouteOperands,
        b: Option<ScaledOperand>,
    ) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        unsafe { self.send(stream, x, routes, b, None) }
    }

    /// Computes the whole layer: dispatch, products and combine.
    /// `gates` and `out` have the same meaning as for [`combine`](Experts::combine).
    ///
    /// # Errors
    /// Fails where [`dispatch`](Experts::dispatch) fails.
    ///
    /// # Safety
    /// The requirements of [`dispatch`](Experts::dispatch) apply.
    pub unsafe fn layer(
        &self,
        stream: RawStream,
        x: ScaledOperand,
        routes: RouteOperands,
        b: ScaledOperand,
        (gates, out): (u64, u64),
    ) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream and the addresses.
        unsafe { self.send(stream, x, routes, Some(b), Some((gates, out))) }
    }

    /// # Safety
    /// The requirements of [`dispatch`](Experts::dispatch) apply.
    unsafe fn send(
        &self,
        stream: RawStream,
        x: ScaledOperand,
        routes: RouteOperands,
        b: Option<ScaledOperand>,
        sum: Option<(u64, u64)>,
    ) -> Result<(), Error> {
        let (moe, problem) = (&self.moe, self.moe.problem());
        let Problem { tokens, hidden, columns, experts, choices, dtype, out: of_out, .. } = *problem;
        // SAFETY: the caller vouches for the stream and the addresses.
        let stream = unsafe { self.comm.stream(stream)? };
        // SAFETY: as above.
        let side = |address, n, dtype| unsafe { self.comm.side(address, count(n), dtype) };
        let scales = |address, n| problem.is_scaled().then(|| side(address, n, DType::F32)).transpose();
        let local = u64::from(experts / self.comm.size());
        let entries = tokens * u64::from(choices);
        let (ids, live) = (side(routes.ids, entries, DType::I32)?, side(routes.live, 1, DType::I32)?);
        let routes = Routes { ids: &ids, live: &live };
        let of_x = scales(x.scales, tokens)?;
        let x = side(x.elements, tokens * hidden, dtype)?;
        let Some(b) = b else {
            match &of_x {
                None => moe.dispatch(&stream, &x, &routes)?,
                Some(of_x) => moe.dispatch_scaled(&stream, &x, of_x, &routes)?,
            }
            return Ok(());
        };
        let of_b = scales(b.scales, local * columns)?;
        let b = side(b.elements, local * hidden * columns, dtype)?;
        let sum = match sum {
            Some((gates, out)) => {
                Some((side(gates, entries, DType::F32)?, side(out, tokens * columns, of_out)?))
            }
            None => None,
        };
        match (&of_x.zip(of_b), &sum) {
            (None, None) => moe.experts(&stream, &x, &routes, &b)?,
            (None, Some((gates, out))) => moe.layer(&stream, &x, &routes, &b, gates, out)?,
            (Some((of_x, of_b)), None) => moe.experts_scaled(&stream, (&x, of_x), &routes, (&b, of_b))?,
            (Some((of_x, of_b)), Some((gates, out))) => {
                moe.layer_scaled(&stream, (&x, of_x), &routes, (&b, of_b), gates, out)?;
            }
        }
        Ok(())
    }

    /// Writes the sum of the results of each token's experts times `gates`, f32 (token, choice).
    /// The sums are computed in f32.
    ///
    /// # Errors
    /// Fails for an address that is not a multiple of 16 ([`Error::Unaligned`]), and where
    /// [`Moe::combine`] fails.
    ///
    /// # Safety
    /// The conditions are those of [`dispatch`](Experts::dispatch).
    pub unsafe fn combine(
        &self,
        stream: RawStream,
        routes: RouteOperands,
        gates: u64,
        out: u64,
    ) -> Result<(), Error> {
        let Problem { tokens, columns, choices, out: of_out, .. } = *self.moe.problem();
        // SAFETY: the caller vouches for the stream and the addresses.
        let stream = unsafe { self.comm.stream(stream)? };
        // SAFETY: as above.
        let side = |address, n, dtype| unsafe { self.comm.side(address, count(n), dtype) };
        let entries = tokens * u64::from(choices);
        let (ids, live) = (side(routes.ids, entries, DType::I32)?, side(routes.live, 1, DType::I32)?);
        let (gates, out) = (side(gates, entries, DType::F32)?, side(out, tokens * columns, of_out)?);
        let routes = Routes { ids: &ids, live: &live };
        Ok(self.moe.combine(&stream, &routes, &gates, &out)?)
    }

    /// Waits for the stream, and returns whether the newest dispatch was carried out.
    ///
    /// # Errors
    /// Fails on every rank for routes that cannot be carried out (R0506).
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream.
    pub unsafe fn check(&self, stream: RawStream) -> Result<(), Error> {
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { self.comm.stream(stream)? };
        Ok(self.moe.check(&stream)?)
    }
}

impl fmt::Debug for Experts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Experts({})", self.moe.problem())
    }
}
