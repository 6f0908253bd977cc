//! Finds errors that hardware hides: data races between threads, CTAs and PEs, synchronisation that
//! is too weak, and reads of memory that has not been written.
//!
//! Two overlapping accesses by different threads, of which at least one writes, are a *data race*.
//! The exceptions are accesses of which one happens before the other, and strong accesses whose
//! scopes include each other's thread (PTX ISA, memory consistency model). Clocks record which
//! events happen before which: [`clock`]. [`shadow`] remembers the latest accesses to all memory.
//! [`sync`] has threads' clocks and moves knowledge along releases and acquires, fences and
//! barriers. [`detector`] compares accesses, [`why`] and [`near`] look for the missing order, and
//! [`report`] and [`remedy`] express it in words.

pub(crate) mod clock;
mod compare;
pub(crate) mod detector;
mod happens_before;
mod near;
mod patterns;
pub(crate) mod programs;
mod remedy;
mod report;
mod sequential;
mod shadow;
mod stale;
mod sync;
mod why;

pub(crate) use detector::Detector;
pub(crate) use patterns::Releases;
pub(crate) use sync::Stream;

use crate::codes;
use crate::error::CodeLocation;
use std::fmt;

/// The options of the checks that watch running kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Whether to find data races, in global and shared memory.
    pub races: bool,
    /// Whether to find reads of memory that neither the host nor a kernel has written.
    pub uninitialised: bool,
    /// The largest number of different findings that are kept; others are only counted.
    pub limit: usize,
}

crate::setters!(Check { races: bool, uninitialised: bool, limit: usize });

impl Default for Check {
    fn default() -> Self {
        Check { races: true, uninitialised: true, limit: 64 }
    }
}

/// The unit that carries out an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Agent {
    /// The thread carries it out itself.
    #[default]
    Thread,
    /// A copy that the thread has begun (`cp.async`), in the generic proxy.
    Copy,
    /// A bulk copy or matrix operation that the thread has begun, in the async proxy.
    Async,
    /// An NVSHMEM operation that the thread has begun.
    Remote,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// The access reads memory.
    Read,
    /// The access writes memory.
    Write,
    /// The access reads and writes memory atomically.
    Update,
}

impl AccessKind {
    pub(crate) fn reads(self) -> bool {
        self != AccessKind::Write
    }
    pub(crate) fn writes(self) -> bool {
        self != AccessKind::Read
    }
}

/// One of the accesses of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The thread and the instruction that made the access.
    pub place: CodeLocation,
    /// The kind of the access.
    pub kind: AccessKind,
    /// Whether the thread or an operation that it began makes the access.
    pub agent: Agent,
}

/// The memory that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemorySpace {
    /// An allocation in the private memory of a PE, or a variable of a module there.
    Global {
        /// The PE that owns the memory.
        pe: usize,
    },
    /// A PE's part of the symmetric heap.
    Symmetric {
        /// The PE that owns the memory.
        pe: usize,
    },
    /// The shared memory of a CTA.
    Shared {
        /// The PE that runs the CTA.
        pe: usize,
        /// The index of the CTA (`%ctaid`).
        cta: [u32; 3],
    },
}

impl MemorySpace {
    /// The PE whose memory it is.
    pub fn pe(&self) -> usize {
        match self {
            MemorySpace::Global { pe } | MemorySpace::Symmetric { pe } | MemorySpace::Shared { pe, .. } => {
                *pe
            }
        }
    }
}

/// The bytes that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The name of the allocation or variable, which may be empty.
    pub name: String,
    /// The memory that the bytes are in.
    pub space: MemorySpace,
    /// The offset of the first byte in the allocation or variable.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { name, space, offset, bytes } = self;
        write!(f, "{bytes} bytes at `{name}`+{offset}, ")?;
        match space {
            MemorySpace::Global { pe } => write!(f, "global memory of PE {pe}"),
            MemorySpace::Symmetric { pe } => write!(f, "symmetric heap of PE {pe}"),
            MemorySpace::Shared { pe, cta: [x, y, z] } => {
                write!(f, "shared memory of PE {pe}, CTA ({x}, {y}, {z})")
            }
        }
    }
}

/// An error that did not stop the program.
///
/// The codes are: `S030`, a data race that nothing orders; `S031`, a data race with synchronisation
/// but without release or acquire; `S032`, a data race whose scope does not include the other
/// thread; `S033`, a missing proxy fence; `S034`, an NVSHMEM operation that is not complete;
/// `S035`, an asynchronous copy that is not complete; `S036`, a read of memory that has not been
/// written; `S037`, `ld.global.nc` of memory that the launch writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The stable code of the finding.
    pub code: codes::Code,
    /// A sentence that says what is wrong.
    pub message: String,
    /// The access during which the error was found.
    pub at: Access,
    /// The earlier of the two accesses.
    pub other: Option<Access>,
    /// The bytes of memory that the finding is about.
    pub location: Option<Location>,
    /// Sentences that say which order is missing.
    pub notes: Vec<String>,
    /// A text that says what to do. It may be empty.
    pub help: String,
    /// The number of times that the same two instructions were found.
    pub count: u64,
    /// The rank among findings about the same two locations. The finding of the highest rank leads
    /// to the cause.
    pub rank: u8,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(l) = &self.location {
            write!(f, "\n  on {l}")?;
        }
        write!(f, "\n  at {}", self.at.place)?;
        if let Some(other) = &self.other {
            write!(f, "\n  after {}", other.place)?;
        }
        for note in &self.notes {
            write!(f, "\n  = {note}")?;
        }
        if !self.help.is_empty() {
            write!(f, "\n  = help: {}", self.help)?;
        }
        if self.count > 1 {
            write!(f, "\n  = {} times", self.count)?;
        }
        Ok(())
    }
}
