//! Execution: what an instruction sees ([`Context`]), what it answers ([`Flow`], [`Fault`]), and the machinery
//! that runs warps.

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

/// Register slot of the current frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reg(pub u32);

/// Predicate slot of the current frame; a predicate is a bit for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pred(pub u32);

/// Predicate slots that every frame has.
impl Pred {
    /// `CC.CF`, the carry of extended-precision arithmetic.
    pub(crate) const CARRY: Pred = Pred(0);
    /// Always false.
    pub(crate) const FALSE: Pred = Pred(1);
    /// Where unwanted results go.
    pub(crate) const SINK: Pred = Pred(2);
    pub(crate) const RESERVED: u32 = 3;
}

/// A predicate operand, possibly negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredSrc {
    pub slot: Pred,
    /// Xor mask: all ones if negated.
    pub flip: u32,
}

/// Register or constant-pool entry.
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
    /// Its value in one lane.
    pub(crate) fn value(self, regs: &[Lanes], consts: &[Lanes], lane: usize) -> Option<u64> {
        let list = if self.register().is_some() { regs } else { consts };
        list.get((self.0 & !Self::CONST) as usize).map(|lanes| lanes[lane])
    }

    /// The register, where it is one.
    pub(crate) fn register(self) -> Option<Reg> {
        (self.0 & Self::CONST == 0).then_some(Reg(self.0))
    }
}

/// A decoded instruction. Implementations live with their family in [`crate::isa`].
pub(crate) trait Operation: Send + Sync {
    /// Carries the instruction out for the lanes `cx.active`, which are never none.
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault>;

    /// The two values that it compares, if it is a comparison.
    fn compared(&self) -> Option<[Src; 2]> {
        None
    }

    /// What it uses, if that is all that it does: then a load that is put off may stay so.
    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        None
    }
}

pub(crate) type Op = Box<dyn Operation>;

/// How execution goes on for the active lanes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Flow {
    Next,
    /// Next, but let other warps run first: the program is waiting.
    Yield,
    /// To this program counter.
    Jump(u32),
    /// Each active lane to its own label, `cx.targets[lane]`.
    Scatter,
    /// Through this call site of the module.
    Call(u32),
    Return,
    Exit,
    /// Again, when these lanes have arrived here too.
    Converge(u32),
    /// The same for some of the lanes; the others go on.
    Part {
        waiting: u32,
        needed: u32,
    },
    /// Next, when these lanes have arrived at `bar.warp.sync`, this one or another.
    Meet(u32),
    Barrier(barrier::Arrival),
    ClusterBarrier(cluster::Step),
    /// Next; the CTA lets the grids behind this one begin.
    LaunchDependents,
    /// Next, when the grids in front of this one have ended.
    WaitDependencies,
    /// These lanes look again when memory has changed; the others go on.
    Stay(u32),
}

/// Why an instruction could not be carried out.
#[derive(Debug)]
pub(crate) struct FaultInfo {
    pub code: codes::Code,
    pub message: String,
    pub help: String,
    pub lane: Option<usize>,
    /// Offset in shared memory, if that is where it happened: the runner knows the variables' names.
    pub shared: Option<u64>,
}

/// Boxed: the good path should not pay for it.
pub(crate) type Fault = Box<FaultInfo>;

/// A fault of one lane.
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

/// Local memory of a warp's lanes: the frames' variables and call parameters.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    pub lanes: Vec<Vec<u8>>,
}

/// The latest value a warp read from global or shared memory: what it waits for, if it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Poll {
    pub pc: u32,
    pub addr: u64,
    pub value: u64,
    pub bytes: u8,
    pub shared: bool,
    pub valid: bool,
    /// Whether it was read since the warp's state was last copied to find repetitions.
    pub fresh: bool,
    /// The mbarrier at which it waits. `value` is the parity or state that it waits with.
    pub mbarrier: Option<crate::memory::Spot>,
}

/// Coordinates of a CTA that its instructions can ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Coordinates {
    pub pe: usize,
    /// Number of the grid in the launch.
    pub grid: usize,
    pub ctaid: [u32; 3],
    pub nctaid: [u32; 3],
    pub ntid: [u32; 3],
    /// CTAs of its cluster.
    pub cluster: [u32; 3],
    /// Its number in the cluster.
    pub rank: u32,
    /// The shared memories of the cluster's CTAs among the machine's buffers, by rank.
    pub members: Vec<usize>,
    /// Number of the CTA among those resident on its PE (`%smid`).
    pub slot: u32,
    pub slots: u32,
    pub static_shared: u32,
    pub dynamic_shared: u32,
}

impl Coordinates {
    /// `%tid` of a linear thread number.
    #[inline]
    pub(crate) fn tid(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.ntid;
        [linear % x, linear / x % y, linear / (x * y)]
    }
}

/// What printing kernels have printed, bounded.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub text: String,
    pub limit: usize,
    pub truncated: bool,
    /// The PE that printed last.
    pub last: usize,
}

impl Output {
    /// Appends, each line prefixed by its PE; a line that another PE left open is ended.
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

/// All that an instruction sees and changes.
pub(crate) struct Context<'a> {
    pub regs: &'a mut [Lanes],
    pub preds: &'a mut [u32],
    pub consts: &'a [Lanes],
    /// Lanes that execute this instruction.
    pub active: u32,
    /// Lanes of the warp that have not exited.
    pub live: u32,
    pub pc: u32,
    /// Offset of the frame's variables in each lane's local memory.
    pub frame_base: u64,
    pub locals: &'a mut Locals,
    /// The CTA's shared memory among the machine's buffers.
    pub shared: usize,
    pub params: &'a [u8],
    pub memory: &'a mut Memory,
    pub at: &'a Coordinates,
    /// Warp number in the CTA.
    pub warp: u32,
    pub poll: &'a mut Poll,
    pub targets: &'a mut [u32; LANES],
    pub output: &'a mut Output,
    /// The bytes by team and PE.
    pub multicast: &'a mut Vec<MulticastBytes>,
    pub remote: &'a mut Remote,
    /// The call of a built-in function in which each lane waits, or 0.
    pub tickets: &'a mut [u64; LANES],
    /// The call that threads of the CTA have come to, others not yet.
    pub gathering: &'a mut Option<u64>,
    /// Threads of the CTA that have not exited.
    pub cta_live: u32,
    /// Matrix multiplications that the warp has under way.
    pub pipe: &'a mut Pipe,
    /// The load that the warp has put off.
    pub deferral: &'a mut Deferral,
    /// The state of the warpgroups of the CTA.
    pub warpgroups: &'a mut Vec<Warpgroup>,
    /// What the machine model leaves open is drawn here.
    pub rng: &'a mut Rng,
    /// Warp instructions executed so far on the whole machine: the clock.
    pub clock: u64,
    /// The warp's slot at the runner's.
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

    /// Sets the predicate of the active lanes.
    #[inline]
    pub(crate) fn set_pred(&mut self, p: Pred, bits: u32) {
        let slot = &mut self.preds[p.0 as usize];
        *slot = *slot & !self.active | bits & self.active;
    }

    /// Writes one value to the active lanes.
    #[inline]
    pub(crate) fn splat(&mut self, r: Reg, value: u64) {
        let active = self.active;
        let d = self.reg(r);
        for lane in lanes(active) {
            d[lane] = value;
        }
    }

    /// Linear number of a lane's thread in its CTA.
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
