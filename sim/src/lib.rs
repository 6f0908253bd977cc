//! A PTX reader and a simulator of many processing elements (PEs).
//!
//! [`Module::parse`] reads PTX text as LLVM's NVPTX back end, or a person, writes it, and decodes it once to
//! executable operations. A [`Machine`] has PEs with private memory and a symmetric heap; each PE sees its
//! peers' heaps and its teams' multicast ranges at addresses of its own. [`Machine::launch`] runs one grid a PE,
//! all at the same time, so that barriers in which kernels on several PEs spin make progress.
//!
//! ```
//! use weft_sim::{Arg, Config, Launch, Machine, Module};
//! let ptx = "
//! .version 8.0 .target sm_90 .address_size 64
//! .visible .entry fill(.param .u64 out, .param .u32 value) {
//!     .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!     ld.param.b64 %rd1, [out];
//!     ld.param.b32 %r1, [value];
//!     mov.u32 %r2, %tid.x;
//!     mul.wide.u32 %rd2, %r2, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     st.global.b32 [%rd3], %r1;
//!     ret;
//! }";
//! let module = Module::parse(ptx)?;
//! let mut machine = Machine::new(Config::default())?;
//! let out = machine.alloc(0, "out", 64 * 4, 16)?;
//! let args = vec![Arg::U64(out), Arg::U32(7)];
//! machine.launch(&module, "fill", &[Launch::default().block([64, 1, 1]).args(args)])?;
//! let mut bytes = [0; 4];
//! machine.read(0, out + 63 * 4, &mut bytes)?;
//! assert_eq!(u32::from_le_bytes(bytes), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The machine model
//!
//! * A warp executes one instruction for all its active lanes at once, lanes in ascending order; memory is
//!   sequentially consistent at this grain. With [`Config::explore`] other CTAs see weak and relaxed stores late, until a
//!   release or fence whose scope includes them. Whether accesses are ordered, however they happened to fall, is what
//!   [`Config::check`] watches; [`Machine::take_findings`] has what it found.
//! * Lanes of a warp may diverge and are scheduled independently; they reconverge where their program counters
//!   meet. `.sync` instructions and barriers wait for the lanes they name.
//! * Every CTA up to the number that fits the PE's SMs ([`Config::sms`]) is resident, and all resident warps of
//!   all PEs take turns in an order drawn from [`Config::seed`].
//! * `multimem.ld_reduce` reduces the members' elements in the order of the team's list. Without `.acc` each
//!   step is rounded to the element type, with `.acc::f32` (or `.acc::f16`) to that type, and the result once
//!   more. Hardware's order is unspecified: results that depend on it are not to be compared bit by bit.
//! * Memory that nobody has written holds [`Config::poison`].
//! * Approximate instructions (`ex2.approx`, `rcp.approx`, ...) are computed in double precision and rounded:
//!   within the error the manual allows, not the bits of any hardware.
//! * Matrix instructions have the bits of an H200 ([`instruction_table`] says how its tensor cores add). A `wgmma` is one
//!   operation of its four warps. It reads shared memory at a moment that the seed chooses, after the last of them has
//!   begun it and before the first of them has waited for it. A register that it uses is an error to touch until then,
//!   but for moves, before which ptxas waits too.
//!
//! Anything that is not simulated is an error at [`Module::parse`] that names the PTX line.
//!
//! # Several kernels
//!
//! [`Machine::launch`] runs the grids of one kernel to their end. [`Machine::begin`] gives the machine a grid of any kernel
//! of any module, behind others; [`Machine::advance`] runs until a grid has ended, after which more may begin; and
//! [`Machine::settle`] ends the run when all have ended. All grids that have begun run at the same time, on one PE too,
//! where each has all SMs.
//!
//! # Clusters and asynchronous operations
//!
//! * The CTAs of a cluster ([`Launch::cluster`]) are resident together. Each sees the others' shared memory at the
//!   addresses that `mapa` makes, until that CTA has ended.
//! * What `cp.async`, bulk and tensor copies (TMA), `st.async` and `red.async` begin lands when the manual allows it, drawn
//!   from the seed: at once, later, or not before somebody waits; in any order, bulk copies in pieces. Until then the
//!   destination holds what it held, and the source has perhaps not been read.
//! * mbarriers keep their state apart: one that was never initialised, has been written over, or is told of more arrivals
//!   or bytes than its phase expects, is an error. `try_wait` answers at once; who waits for a phase that nobody can
//!   complete any more is told what it lacks.
//! * Tensor maps are encoded by [`TensorMap::encode`], or by a kernel's `tensormap.replace` from zeros. The driver's are
//!   opaque and do not work here.
//!
//! # NVSHMEM
//!
//! Calls of `.extern .func nvshmem...` go to functions that are built in, by name ([`nvshmem_functions`]); their
//! prototypes are checked when the module is read. They mean what NVSHMEM's manual says, and take every liberty that it
//! leaves, drawn from [`Config::seed`]:
//!
//! * A non-blocking operation stays under way until its PE calls quiet or a barrier, a fence orders a later operation
//!   behind it, or nobody could go on without it. Only then a put reads its source and a get writes its destination.
//! * A blocking put, a signal or a non-fetching atomic has taken its operands along and lands at once or later. Without
//!   a fence, operations land in any order, and a put in pieces; a put's own signal lands after all of it.
//! * Teams are named by [`Team::handle`]. All PEs of one come to its collective functions; what they call must agree.
//! * Functions that wait take part in the detection of deadlocks, which says what each waits for and finds.
//! * The end of a kernel completes nothing. What is under way when all kernels of a launch have ended lands then, as it
//!   would at the host's next barrier, and is counted in [`NvshmemStats::unfinished`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

// In layers, each of which imports from those below it only: `tests/layers.rs` lists them and checks that.
mod builder;
mod check;
pub mod codes;
mod decode;
mod error;
mod exec;
mod isa;
mod machine;
mod memory;
mod model;
mod module;
mod names;
mod num;
mod nvshmem;
mod order;
mod ptx;
mod rng;
mod setters;
mod slices;
mod stats;
mod types;
mod visible;

pub use check::{Access, AccessKind, Agent, Check, Finding, Location, MemorySpace};
pub use error::{CodeLocation, PtxError, SimError, SourceLine};
pub use exec::asynchronous::tensor::{Swizzle, TensorMap, TensorType};
pub use exec::code::{Kernel, Param};
pub use exec::trace::{Activity, Trace, TraceConfig, TraceSpan, TraceTraffic, TraceTransfer};
pub use machine::{Arg, Config, GridId, Launch, Machine};
pub use memory::{Elements, Name, Symmetric, Team};
pub use module::Module;
pub use names::Named;
pub use nvshmem::{NvshmemFunction, nvshmem_function, nvshmem_functions};
pub use slices::{HostArg, Number, RunError, run};
pub use stats::{MulticastBytes, MulticastTraffic, NvshmemStats, OpcodeCount, Port, Stats};
pub use visible::{visible, visible_line};

/// The tables of supported instructions and built-in functions as Markdown (the text of
/// `docs/ptx-instructions.md`).
pub fn instruction_table() -> String {
    isa::docs::markdown() + &nvshmem::markdown()
}
