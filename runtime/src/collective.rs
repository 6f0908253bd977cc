//! Collectives of a team on streams.
//!
//! Source: NVSHMEM API, Collective Communication (`_on_stream` forms). All PEs of the team make the same calls in the
//! same order; sizes are per PE. Sources and destinations do not overlap, except that an in-place reduce has one
//! tensor for both.

use crate::Element;
use crate::cuda::Stream;
use crate::error::{self, Error, Result};
use crate::memory::SymmetricTensor;
use crate::nvshmem::Collective;
use crate::rma::Local;
use crate::team::Team;

/// The operation that reduces the elements of PEs to one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// The sum of all elements.
    Sum,
    /// The product of all elements.
    Prod,
    /// The smallest of all elements.
    Min,
    /// The largest of all elements.
    Max,
    /// The bitwise "and" of integers.
    And,
    /// The bitwise "or" of integers.
    Or,
    /// The bitwise "exclusive or" of integers.
    Xor,
}

impl Reduce {
    /// Every operation, in the order of the variants.
    pub const ALL: [Reduce; 7] =
        [Reduce::Sum, Reduce::Prod, Reduce::Min, Reduce::Max, Reduce::And, Reduce::Or, Reduce::Xor];

    /// The name in NVSHMEM's functions.
    pub fn name(self) -> &'static str {
        ["sum", "prod", "min", "max", "and", "or", "xor"][self as usize]
    }
}

impl Team {
    /// Waits, in stream order, until all PEs have arrived and all their operations are complete.
    ///
    /// # Errors
    /// Fails if an NVSHMEM call fails (R0106), or after the world has ended (R0305).
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        let world = self.world.on(stream)?;
        self.agree("barrier on a stream", stream)?;
        world.library.barrier(self.handle, stream)
    }

    /// Waits, in stream order, until all PEs have arrived. Their operations may still be pending.
    ///
    /// # Errors
    /// Fails where [`barrier`](Team::barrier) fails.
    pub fn sync(&self, stream: &Stream) -> Result<()> {
        let world = self.world.on(stream)?;
        self.agree("sync on a stream", stream)?;
        world.library.sync(self.handle, stream)
    }

    /// Reduces all PEs' `source` into `dest` of every PE, element by element (an allreduce).
    ///
    /// # Errors
    /// Fails if NVSHMEM has no such operation for the type (R0401), for different sizes (R0307), if
    /// the PEs make different calls (unless [checks](crate::Config::checks) are off) (R0301), if an
    /// NVSHMEM call fails (R0106), or after the world has ended (R0305).
    pub fn reduce<T: Element>(
        &self,
        op: Reduce,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        self.collective(&format!("{}_reduce", op.name()), dest, source, (1, 1), stream)
    }

    /// Reduces all PEs' `source`, and stores this PE's part of the result in `dest`. `source` has
    /// as many elements for each PE as `dest` has in total.
    ///
    /// # Errors
    /// Fails where [`reduce`](Team::reduce) fails.
    pub fn reduce_scatter<T: Element>(
        &self,
        op: Reduce,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let shares = (1, self.n_pes() as usize);
        self.collective(&format!("{}_reducescatter", op.name()), dest, source, shares, stream)
    }

    /// Gathers all PEs' `source` in `dest`, in order of their ranks (an all-gather with equal
    /// sizes).
    ///
    /// # Errors
    /// Fails where [`reduce`](Team::reduce) fails.
    pub fn fcollect<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        self.collective("fcollect", dest, source, (self.n_pes() as usize, 1), stream)
    }

    /// Moves part j of PE i's `source` to part i of PE j's `dest`.
    ///
    /// # Errors
    /// Fails where [`reduce`](Team::reduce) fails, or if the team's size does not divide the number
    /// of elements (R0307).
    pub fn alltoall<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        stream: &Stream,
    ) -> Result<()> {
        let n = self.n_pes() as usize;
        self.collective("alltoall", dest, source, (n, n), stream)
    }

    /// Copies the `source` of the PE with rank `root` to `dest` of every PE.
    ///
    /// # Errors
    /// Fails where [`reduce`](Team::reduce) fails, or for a root that is not in the team (R0303).
    pub fn broadcast<T: Element>(
        &self,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        root: u32,
        stream: &Stream,
    ) -> Result<()> {
        let world = self.world.on(stream)?;
        self.world_pe(root)?;
        let io = self.sides("broadcast", dest, source, (1, 1))?;
        self.agree(&format!("broadcast of {} {} from PE {root} on a stream", io.count, T::DTYPE), stream)?;
        world.library.broadcast(T::DTYPE, &io, root, stream)
    }

    fn collective<T: Element>(
        &self,
        name: &str,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        parts: (usize, usize),
        stream: &Stream,
    ) -> Result<()> {
        let world = self.world.on(stream)?;
        let io = self.sides(name, dest, source, parts)?;
        let call = world.library.find_collective(name, T::DTYPE)?;
        self.agree(&format!("{name} of {} {} on a stream", io.count, T::DTYPE), stream)?;
        world.library.collective(&call, &io, stream)
    }

    /// Checks that all PEs of the team make the same call
    /// ([`Config::checks`](crate::Config::checks)).
    fn agree(&self, what: &str, stream: &Stream) -> Result<()> {
        match self.world.checks(stream) {
            true => self.together(what),
            false => Ok(()),
        }
    }

    /// Checks both sides: `dest` and `source` have these numbers of parts, all of equal size.
    fn sides<T: Element>(
        &self,
        name: &str,
        dest: &SymmetricTensor<T>,
        source: &SymmetricTensor<T>,
        (of_dest, of_source): (usize, usize),
    ) -> Result<Collective> {
        let (d, s) = (dest.compact(name)?, source.compact(name)?);
        if d % of_dest != 0 || s % of_source != 0 || d / of_dest != s / of_source {
            let pes = self.n_pes();
            let message = format!("{name} over a team of {pes} PEs cannot go from {s} to {d} elements");
            let help =
                format!("give the destination {of_dest} and the source {of_source} parts of equal size");
            return Err(Error::new(error::SHAPE, message).help(help));
        }
        dest.keep();
        source.keep();
        Ok(Collective {
            team: self.handle,
            dest: dest.address(),
            source: source.address(),
            count: d / of_dest,
        })
    }
}
