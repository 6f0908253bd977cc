//! Execution: the view of an instruction ([`Context`]), its result ([`Flow`], [`Fault`]), and the
//! machinery that runs warps.

pub(crate) mod access;
pub(crate) mod asynchronous;
pub(crate) mod barrier;
pub(crate) mod cluster;
pub(crate) mod code;
pub(crate) mod defer;
pub(crate) mod pipe;
pub(crate) mod remote;
pub(crate) mod run;
mod schedule;
pub(crate) mod stall;
pub(crate) mod trace;
pub(crate) mod warp;
mod watch;
mod words;

use crate::check::Detector;
use crate::codes;
use crate::memory::{AccessError, Memory};
use crate::model::{LANES, Lanes, WarpSlot, lanes};
use crate::rng::Rng;
use crate::stats::MulticastBytes;
use defer::{Deferral, Footprint};
use pipe::{Pipe, Warpgroup};
use remote::Remote;
use std::fmt::Write as _;

/// A register slot of the current frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reg(pub u32);

/// A predicate slot of the current frame. A predicate has a bit for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pred(pub u32);

/// The predicate slots that every frame has.
impl Pred {
    /// The flag `CC.CF`, the carry of extended-precision arithmetic.
    pub(crate) const CARRY: Pred = Pred(0);
    /// A predicate that is always false.
    pub(crate) const FALSE: Pred = Pred(1);
    /// The slot for unused results.
    pub(crate) const SINK: Pred = Pred(2);
    pub(crate) const RESERVED: u32 = 3;
}

/// A predicate operand, which may be negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredSrc {
    pub slot: Pred,
    /// The xor mask: all ones if negated.
    pub flip: u32,
}

/// A register or an entry of the constant pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Src(u32);

impl Src {
    const CONST: u32 = 1 << 31;

    pub(crate) fn reg(r: Reg) -> Self {
        Src(r.0)
    }
    pub(crate) fn constant(index: u32) -> Self {
        Src(index | Self::CONST)
    }
    /// Returns the value in one lane.
    pub(crate) fn value(self, regs: &[Lanes], consts: &[Lanes], lane: usize) -> Option<u64> {
        let list = if self.register().is_some() { regs } else { consts };
        list.get((self.0 & !Self::CONST) as usize).map(|lanes| lanes[lane])
    }

    /// Returns the register, if the source is one.
    pub(crate) fn register(self) -> Option<Reg> {
        (self.0 & Self::CONST == 0).then_some(Reg(self.0))
    }
}

/// A decoded instruction. The implementations are with their family in [`crate::isa`].
pub(crate) trait Operation: Send + Sync {
    /// Executes the instruction for the lanes `cx.active`, of which there is at least one.
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault>;

    /// The two values that the instruction compares, if it is a comparison.
    fn compared(&self) -> Option<[Src; 2]> {
        None
    }

    /// The registers and memory that the instruction uses, if it has no other effect. Then a
    /// deferred load can stay deferred.
    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        None
    }
}

pub(crate) type Op = Box<dyn Operation>;

/// How the active lanes continue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Flow {
    Next,
    /// Continue with the next instruction, but let other warps run first, since the program is
    /// waiting.
    Yield,
    /// Jump to this program counter.
    Jump(u32),
    /// Jump in each active lane to its own label, `cx.targets[lane]`.
    Scatter,
    /// Call through this call site of the module.
    Call(u32),
    Return,
    Exit,
    /// Execute the instruction again when these lanes have also arrived here.
    Converge(u32),
    /// Do the same for some of the lanes; the others continue.
    Part {
        waiting: u32,
        needed: u32,
    },
    /// Continue when these lanes have arrived at `bar.warp.sync`, at this instruction or another.
    Meet(u32),
    Barrier(barrier::Arrival),
    ClusterBarrier(cluster::Step),
    /// Continue; the CTA lets the grids after this one begin.
    LaunchDependents,
    /// Continue when the grids before this one have ended.
    WaitDependencies,
    /// Execute the instruction again in these lanes when memory has changed; the others continue.
    Stay(u32),
}

/// The reason why an instruction could not be executed.
#[derive(Debug)]
pub(crate) struct FaultInfo {
    pub code: codes::Code,
    pub message: String,
    pub help: String,
    pub lane: Option<usize>,
    /// The offset in shared memory, if the fault happened there. The runner knows the names of
    /// variables.
    pub shared: Option<u64>,
}

/// A boxed fault, so that the path without a fault is cheap.
pub(crate) type Fault = Box<FaultInfo>;

/// Makes the fault of one lane.
#[cold]
pub(crate) fn fault(
    code: codes::Code,
    lane: usize,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Fault {
    Box::new(FaultInfo { code, message: message.into(), help: help.into(), lane: Some(lane), shared: None })
}

#[cold]
pub(crate) fn access_fault(lane: usize, e: AccessError) -> Fault {
    fault(e.code, lane, e.message, e.help)
}

/// The local memory of a warp's lanes: variables of frames and call parameters.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    pub lanes: Vec<Vec<u8>>,
}

/// The latest value that a warp read from global or shared memory, for which it waits if it is
/// waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Poll {
    pub pc: u32,
    pub addr: u64,
    pub value: u64,
    pub bytes: u8,
    pub shared: bool,
    pub valid: bool,
    /// Whether the value was read after the warp's state was last copied to find repetitions.
    pub fresh: bool,
    /// The lanes that read it.
    pub mask: u32,
    /// The mbarrier at which it waits. `value` is the parity or state that it waits with.
    pub mbarrier: Option<crate::memory::Spot>,
}

/// The coordinates of a CTA that its instructions can read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coordinates {
    pub pe: usize,
    /// The number of the grid in the launch.
    pub grid: usize,
    pub ctaid: [u32; 3],
    pub nctaid: [u32; 3],
    pub ntid: [u32; 3],
    /// The shape of its cluster in CTAs.
    pub cluster: [u32; 3],
    /// The rank of the CTA in the cluster.
    pub rank: u32,
    /// The buffers with the shared memories of the cluster's CTAs, by rank.
    pub members: Vec<usize>,
    /// The number of the CTA among those resident on its PE (`%smid`).
    pub slot: u32,
    pub slots: u32,
    pub static_shared: u32,
    pub dynamic_shared: u32,
}

impl Coordinates {
    /// Returns `%tid` of a linear thread number.
    #[inline]
    pub(crate) fn tid(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.ntid;
        [linear % x, linear / x % y, linear / (x * y)]
    }
}

/// The text that kernels have printed, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub text: String,
    pub limit: usize,
    pub truncated: bool,
    /// The PE that printed last.
    pub last: usize,
}

impl Output {
    /// Appends text and prefixes each line with its PE. A line that another PE left open is ended.
    pub(crate) fn print(&mut self, pe: usize, text: &str) {
        if self.text.len() + text.len() > self.limit {
            self.truncated = true;
            return;
        }
        if self.last != pe && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.last = pe;
        for line in text.split_inclusive('\n') {
            if self.text.is_empty() || self.text.ends_with('\n') {
                let _ = write!(self.text, "PE {pe}: ");
            }
            self.text.push_str(line);
        }
    }
}

/// All state that an instruction can read and change.
pub(crate) struct Context<'a> {
    pub regs: &'a mut [Lanes],
    pub preds: &'a mut [u32],
    pub consts: &'a [Lanes],
    /// The lanes that execute this instruction.
    pub active: u32,
    /// The lanes of the warp that have not exited.
    pub live: u32,
    pub pc: u32,
    /// The offset of the frame's variables in each lane's local memory.
    pub frame_base: u64,
    pub locals: &'a mut Locals,
    /// The buffer with the CTA's shared memory.
    pub shared: usize,
    pub params: &'a [u8],
    pub memory: &'a mut Memory,
    pub at: &'a Coordinates,
    /// The number of the warp in the CTA.
    pub warp: u32,
    pub poll: &'a mut Poll,
    pub targets: &'a mut [u32; LANES],
    pub output: &'a mut Output,
    /// The bytes through the switch, by team and PE.
    pub multicast: &'a mut Vec<MulticastBytes>,
    pub remote: &'a mut Remote,
    /// For each lane, the call of a built-in function in which it waits, or 0.
    pub tickets: &'a mut [u64; LANES],
    /// The call at which some threads of the CTA have arrived, and others not yet.
    pub gathering: &'a mut Option<u64>,
    /// The number of threads of the CTA that have not exited.
    pub cta_live: u32,
    /// The pending matrix multiplications of the warp.
    pub pipe: &'a mut Pipe,
    /// The load that the warp has deferred.
    pub deferral: &'a mut Deferral,
    /// The state of the warpgroups of the CTA.
    pub warpgroups: &'a mut Vec<Warpgroup>,
    /// The source of the random choices that the machine model leaves open.
    pub rng: &'a mut Rng,
    /// The number of warp instructions that the whole machine has executed, which is the clock.
    pub clock: u64,
    /// The runner's slot of the warp.
    pub slot: WarpSlot,
    pub check: Option<&'a mut Detector>,
    pub asynchronous: &'a mut asynchronous::Asynchronous,
}

impl Context<'_> {
    #[inline]
    pub(crate) fn src(&self, s: Src) -> &Lanes {
        if s.0 & Src::CONST != 0 {
            &self.consts[(s.0 & !Src::CONST) as usize]
        } else {
            &self.regs[s.0 as usize]
        }
    }

    #[inline]
    pub(crate) fn reg(&mut self, r: Reg) -> &mut Lanes {
        &mut self.regs[r.0 as usize]
    }

    #[inline]
    pub(crate) fn pred(&self, p: PredSrc) -> u32 {
        self.preds[p.slot.0 as usize] ^ p.flip
    }

    /// Sets the predicate in the active lanes.
    #[inline]
    pub(crate) fn set_pred(&mut self, p: Pred, bits: u32) {
        let slot = &mut self.preds[p.0 as usize];
        *slot = *slot & !self.active | bits & self.active;
    }

    /// Writes one value to all active lanes.
    #[inline]
    pub(crate) fn splat(&mut self, r: Reg, value: u64) {
        let active = self.active;
        let d = self.reg(r);
        for lane in lanes(active) {
            d[lane] = value;
        }
    }

    /// The linear number of a lane's thread in its CTA.
    #[inline]
    pub(crate) fn thread(&self, lane: usize) -> u32 {
        self.warp * LANES as u32 + lane as u32
    }

    /// The value of a source that must be the same in all active lanes.
    pub(crate) fn uniform(&self, s: Src, what: &str) -> Result<u64, Fault> {
        let values = self.src(s);
        let first = self.active.trailing_zeros() as usize;
        match lanes(self.active).find(|&l| values[l] != values[first]) {
            None => Ok(values[first]),
            Some(l) => Err(fault(
                codes::UNDEFINED,
                l,
                format!("{what} differs between the threads of a warp: {} and {}", values[first], values[l]),
                "use the same value in all threads that execute the instruction together",
            )),
        }
    }
}
