//! Mixtures of experts over the ranks.
#![allow(unsafe_code, reason = "callers vouch for streams and addresses")]

use crate::comm::count;
use crate::{Comm, DType, Error, RawStream};
use std::fmt;
use std::sync::Arc;
use weft::moe::{Moe, Plan, Routes};

pub use weft::moe::Problem;

/// Dispatch, products and combine for one problem. Calls of one object follow each other on one stream at a time.
pub struct Experts {
    comm: Arc<Comm>,
    moe: Moe,
}

/// Addresses of the experts of a rank's tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteOperands {
    /// The experts, i32 with modes (token, choice).
    pub ids: u64,
    /// The number of tokens, one i32.
    pub live: u64,
}

impl Experts {
    /// Compiles the kernels, and allocates what launches need. *Collective.*
    ///
    /// # Errors
    /// Fails for a problem that the kernels do not have, and where the ranks ask for different ones (R0505), or without
    /// memory (R0302).
    pub fn new(comm: &Arc<Comm>, problem: Problem) -> Result<Experts, Error> {
        let moe = Moe::new(&comm.world, comm.world.team(), problem, Plan::of(&problem))?;
        Ok(Experts { comm: comm.clone(), moe })
    }

    /// The number of rows that this rank has room for.
    pub fn rows(&self) -> u64 {
        self.moe.problem().rows(self.comm.size())
    }

    /// Where tokens arrive, rows of the problem's `hidden` elements. They are valid until the next dispatch.
    pub fn received(&self) -> u64 {
        self.moe.received().address()
    }

    /// Where results of the experts are, each in the row of its token.
    pub fn results(&self) -> u64 {
        self.moe.results().address()
    }

    /// Where it is written at which row each expert begins, i32.
    pub fn offsets(&self) -> u64 {
        self.moe.offsets().address()
    }

    /// Sends tokens to their experts; with `b`, the matrices of this rank's experts, it multiplies them in the same launch.
    ///
    /// # Errors
    /// Fails for an address that is not a multiple of 16 ([`Error::Unaligned`]), and as [`Moe::dispatch`] does.
    ///
    /// # Safety
    /// `stream` is a stream of the rank's device, or null for its default stream. The operands have the types and extents of
    /// the problem, and the device reaches them until the stream is past the call.
    pub unsafe fn dispatch(
        &self,
        stream: RawStream,
        x: u64,
        routes: RouteOperands,
        b: Option<u64>,
    ) -> Result<(), Error> {
        let Problem { tokens, hidden, columns, experts, choices, dtype, .. } = *self.moe.problem();
        // SAFETY: the caller vouches for the stream and the addresses.
        let stream = unsafe { self.comm.stream(stream)? };
        // SAFETY: as above.
        let side = |address, n, dtype| unsafe { self.comm.side(address, count(n), dtype) };
        let local = u64::from(experts / self.comm.size());
        let x = side(x, tokens * hidden, dtype)?;
        let ids = side(routes.ids, tokens * u64::from(choices), DType::I32)?;
        let live = side(routes.live, 1, DType::I32)?;
        let routes = Routes { ids: &ids, live: &live };
        match b {
            None => self.moe.dispatch(&stream, &x, &routes)?,
            Some(b) => {
                let b = side(b, local * hidden * columns, dtype)?;
                self.moe.experts(&stream, &x, &routes, &b)?;
            }
        }
        Ok(())
    }

    /// Writes the results of each token's experts times `gates`, f32 (token, choice), added up in f32.
    ///
    /// # Errors
    /// Fails for an address that is not a multiple of 16 ([`Error::Unaligned`]), and as [`Moe::combine`] does.
    ///
    /// # Safety
    /// As of [`dispatch`](Experts::dispatch).
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

    /// Waits for the stream, and says whether the newest dispatch was carried out.
    ///
    /// # Errors
    /// Fails on every rank for routes that cannot be carried out (R0506).
    ///
    /// # Safety
    /// `stream` is a stream of the rank's device, or null for its default stream.
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
