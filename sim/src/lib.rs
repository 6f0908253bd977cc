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
//!   sequentially consistent at this granularity. With [`Config::explore`], other CTAs see weak and relaxed stores late,
//!   until a release or a fence whose scope includes them. [`Config::check`] switches on the race detector, which reports
//!   accesses that nothing orders, whatever order they happened to run in; [`Machine::take_findings`] returns its findings.
//! * Lanes of a warp may diverge and are scheduled independently; they reconverge where their program counters
//!   meet. `.sync` instructions and barriers wait for the lanes they name.
//! * As many CTAs are resident as fit the PE's SMs ([`Config::sms`]), and all resident warps of all PEs take turns in an
//!   order drawn from [`Config::seed`].
//! * `multimem.ld_reduce` reduces the members' elements in the order of the team's list. Without `.acc` each
//!   step is rounded to the element type; with `.acc::f32` (or `.acc::f16`) each step is rounded to that type, and the
//!   result is then rounded to the element type. The order that hardware uses is unspecified, so results that depend on it
//!   must not be compared bit by bit.
//! * Memory that has not been written holds [`Config::poison`].
//! * Approximate instructions (`ex2.approx`, `rcp.approx`, ...) are computed in double precision and rounded. The results
//!   lie within the error that the manual allows, but need not equal those of any hardware bit for bit.
//! * Matrix instructions give the same bits as an H200 ([`instruction_table`] says how its tensor cores add). A `wgmma` is
//!   one operation of its four warps. It reads shared memory at a time drawn from the seed, after the last of the warps
//!   has issued it and before the first of them has waited for it. Until then it is an error to access a register that it
//!   uses, except by a move, because ptxas inserts a wait before moves too.
//!
//! [`Module::parse`] rejects everything that the simulator does not support, with an error that names the PTX line.
//!
//! # Several kernels
//!
//! [`Machine::launch`] runs the grids of one kernel until all have ended. [`Machine::begin`] adds a grid of any kernel of
//! any module to the machine, optionally to start after other grids; [`Machine::advance`] runs until a grid has ended,
//! after which more may begin; and [`Machine::settle`] ends the run when all have ended. All grids that have begun run at
//! the same time, on the same PE too, where each grid may use all SMs.
//!
//! # Clusters and asynchronous operations
//!
//! * The CTAs of a cluster ([`Launch::cluster`]) are resident together. Each can access the shared memory of the others at
//!   the addresses that `mapa` computes, until the other CTA has ended.
//! * `cp.async`, bulk and tensor copies (TMA), `st.async` and `red.async` complete at a time that the manual allows, drawn
//!   from the seed: at once, later, or only when a thread waits for them. They complete in any order, bulk copies in
//!   pieces. Until then the destination keeps its old contents, and the source may not have been read yet.
//! * The state of an mbarrier is kept outside simulated memory. It is an error to use one that was never initialised or has
//!   been overwritten, or to signal more arrivals or bytes than its phase expects. `try_wait` returns at once. If a thread
//!   waits for a phase that can no longer complete, the error says which arrivals or bytes are missing.
//! * Tensor maps are encoded by [`TensorMap::encode`], or by a kernel's `tensormap.replace` starting from zeros. Tensor
//!   maps encoded by the CUDA driver have an undocumented format and do not work here.
//!
//! # NVSHMEM
//!
//! Calls of `.extern .func nvshmem...` are executed by built-in functions, found by name ([`nvshmem_functions`]); their
//! prototypes are checked when the module is read. They behave as NVSHMEM's manual says; where the manual allows several
//! behaviours, [`Config::seed`] chooses one:
//!
//! * A non-blocking operation stays pending until its PE calls quiet or a barrier, until a fence orders a later operation
//!   after it, or until no PE could make progress without it. Only then does a put read its source and a get write its
//!   destination.
//! * A blocking put, a signal or a non-fetching atomic copies its operands when it is called and completes at once or
//!   later. Without a fence, operations complete in any order, and a put in pieces; a put's own signal is set after all of
//!   its data.
//! * Teams are named by [`Team::handle`]. All PEs of a team must call its collective functions, with arguments that agree.
//! * Functions that wait take part in the detection of deadlocks, which reports what each waits for and the value it reads.
//! * The end of a kernel does not complete its operations. Those that are pending when all kernels of a launch have ended
//!   complete then, as they would at the host's next barrier, and are counted in [`NvshmemStats::unfinished`].

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
