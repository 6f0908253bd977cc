//! Executes kernels of the tensor level and of the machine level on bytes of memory, with all
//! threads of all PEs in lockstep.
//!
//! Tensor ops are executed literally: element by element, each at `offset + layout(coordinate)` if
//! its bounds allow. Every access is checked: it must lie in one allocation and be aligned to its
//! size.

#![allow(clippy::needless_range_loop, reason = "a thread's number indexes more than the mask")]

mod memory;
mod remote;
mod together;

use super::num;
use std::collections::HashMap;
use weft_ir::kernel::{Induction, Kernel};
use weft_ir::*;
use weft_passes::Lowered;

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum Arg {
    /// An integer argument.
    Int(i64),
    /// Memory of each PE. Its first byte is aligned to this number of bytes and no more.
    Memory(Vec<Vec<u8>>, u32),
    /// The team of all PEs.
    Team,
}

/// PEs with their memory.
#[derive(Clone, Debug)]
pub struct World {
    pub pes: usize,
    pub grid: [u32; 3],
    pub args: Vec<Arg>,
    /// The output of prints.
    pub printed: Vec<String>,
    /// Every access to a pointer: the op and its number of bytes.
    pub accesses: Vec<(&'static str, u32)>,
    /// Whether a thread trapped.
    pub trapped: bool,
    /// The names of functions that were called.
    pub calls: Vec<String>,
    /// Whether tables contain the addresses of other PEs.
    pub in_reach: bool,
}

/// Extents and strides.
type Modes = Vec<(i64, i64)>;
#[derive(Clone, Debug, Default)]
enum Val {
    #[default]
    None,
    Lanes(Vec<u64>),
    Tensor {
        address: u64,
        everywhere: bool,
        layout: Modes,
        bounds: Vec<(i64, i64, Modes)>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Tid {
    pe: usize,
    cta: [u32; 3],
    thread: [u32; 3],
    group: usize,
    linear: usize,
}

const MEMORY: u64 = 1 << 60;
const EVERYWHERE: u64 = 2 << 60;
const TABLE: u64 = 3 << 60;
const SHARED: u64 = 4 << 60;
const NOWHERE: u64 = 5 << 60;

/// The origin of a kernel's parameter: the launch's parameter, and who fills it in.
struct ParamSource {
    source: u32,
    kind: ParamKind,
}

struct Machine<'a, L: Level> {
    k: &'a Kernel<L>,
    /// The origins, by the kernel's own parameters.
    given: Vec<ParamSource>,
    w: &'a mut World,
    threads: Vec<Tid>,
    vals: Vec<Vec<Val>>,
    locals: Vec<Vec<Val>>,
    shared: HashMap<(usize, u64), Vec<u8>>,
    /// The number of loops and `once` around the current code.
    around: usize,
    /// For each thread, a jump in progress: the number of surrounding loops that remain around its
    /// target, and whether it goes to the next round.
    away: Vec<Option<(usize, bool)>>,
}

impl World {
    pub fn new(pes: usize, grid: [u32; 3], args: Vec<Arg>) -> World {
        World {
            pes,
            grid,
            args,
            printed: vec![],
            accesses: vec![],
            trapped: false,
            calls: vec![],
            in_reach: true,
        }
    }

    /// Launches a kernel as it was written on every PE.
    pub fn launch(&mut self, k: &tensor::Kernel) {
        let params = (0..).zip(&k.head.params);
        let given = params.map(|(source, p)| ParamSource { source, kind: p.kind }).collect();
        self.run(k, given);
    }

    /// Launches a lowered kernel on every PE.
    pub fn launch_lowered(&mut self, lowered: &Lowered) {
        let k = &lowered.module.kernels[0];
        let params = &k.head.launch.as_ref().unwrap().params;
        let given = |p: &MachineParam| {
            let kind = match params[p.source as usize].kind {
                weft_abi::ParamKind::Hidden(hidden) => ParamKind::Hidden(hidden),
                _ => ParamKind::User,
            };
            ParamSource { source: p.source, kind }
        };
        self.run(k, k.head.params.iter().map(given).collect());
    }

    fn run<L: Level>(&mut self, k: &Kernel<L>, given: Vec<ParamSource>) {
        let mut threads = Vec::new();
        for pe in 0..self.pes {
            for cta in coordinates(self.grid) {
                let group = threads.len();
                for (linear, thread) in coordinates(k.block).enumerate() {
                    threads.push(Tid { pe, cta, thread, group, linear });
                }
            }
        }
        let n = threads.len();
        let mut m = Machine {
            k,
            given,
            threads,
            vals: vec![vec![Val::None; k.insts.len()]; n],
            locals: vec![vec![Val::None; k.locals.len()]; n],
            shared: HashMap::new(),
            around: 0,
            away: vec![None; n],
            w: self,
        };
        m.block(&k.body, &vec![true; n]);
    }

    pub fn memory(&self, arg: usize, pe: usize) -> &[u8] {
        match &self.args[arg] {
            Arg::Memory(m, _) => &m[pe],
            other => panic!("{other:?}"),
        }
    }
}

fn coordinates([x, y, z]: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    (0..z).flat_map(move |c| (0..y).flat_map(move |b| (0..x).map(move |a| [a, b, c])))
}

fn at(layout: &[(i64, i64)], mut index: i64) -> i64 {
    let mut offset = 0;
    for (extent, stride) in layout {
        offset += index % extent * stride;
        index /= extent;
    }
    offset
}

impl<L: Level> Machine<'_, L> {
    fn block(&mut self, block: &Block, mask: &[bool]) {
        for &v in &block.0 {
            if self.w.trapped {
                return;
            }
            match self.away.iter().any(Option::is_some) {
                true => self.inst(v, &self.here(mask)),
                false => self.inst(v, mask),
            }
        }
    }

    /// The threads that no jump has taken away.
    fn here(&self, mask: &[bool]) -> Vec<bool> {
        mask.iter().zip(&self.away).map(|(on, away)| *on && away.is_none()).collect()
    }

    /// Executes a block of a loop or `once`.
    fn inside(&mut self, block: &Block, mask: &[bool]) {
        self.around += 1;
        self.block(block, mask);
        self.around -= 1;
    }

    /// Ends the jumps whose target is at the current nesting: those to the next round, or those to
    /// the end.
    fn arrive(&mut self, again: bool) {
        let here = Some((self.around, again));
        self.away.iter_mut().filter(|away| **away == here).for_each(|away| *away = None);
    }

    fn jump(&mut self, to: usize, again: bool, mask: &[bool]) {
        (0..mask.len()).filter(|t| mask[*t]).for_each(|t| self.away[t] = Some((to, again)));
    }

    fn inst(&mut self, v: Value, mask: &[bool]) {
        let k = self.k;
        let op = k.op(v);
        match op.family() {
            FamilyRef::Control(Control::If { cond, then, otherwise }) => {
                let taken: Vec<bool> = (0..mask.len()).map(|t| mask[t] && self.lane(t, *cond) == 1).collect();
                let not: Vec<bool> = (0..mask.len()).map(|t| mask[t] && !taken[t]).collect();
                self.block(then, &taken);
                self.block(otherwise, &not);
            }
            FamilyRef::Control(Control::For { var: Induction(var), lo, hi, step, body, .. }) => {
                let mut i: Vec<i64> =
                    (0..mask.len()).map(|t| if mask[t] { self.i64(t, *lo) } else { 0 }).collect();
                loop {
                    let mask = self.here(mask);
                    let on: Vec<bool> = (0..mask.len()).map(|t| mask[t] && i[t] < self.i64(t, *hi)).collect();
                    if !on.contains(&true) || self.w.trapped {
                        break;
                    }
                    for t in (0..mask.len()).filter(|t| on[*t]) {
                        self.vals[t][var.0 as usize] = Val::Lanes(vec![i[t] as u64]);
                    }
                    self.check_facts(*var, &on);
                    self.inside(body, &on);
                    self.arrive(true);
                    for t in (0..mask.len()).filter(|t| on[*t]) {
                        i[t] += self.i64(t, *step);
                    }
                }
                self.arrive(false);
            }
            FamilyRef::Control(Control::While { head, cond, body }) => {
                let mut on = mask.to_vec();
                for round in 0.. {
                    assert!(round < 10_000, "an endless loop");
                    self.inside(head, &on);
                    let asked = self.here(&on);
                    for t in 0..on.len() {
                        on[t] = on[t] && !(asked[t] && self.lane(t, *cond) == 0);
                    }
                    if !on.contains(&true) || self.w.trapped {
                        break;
                    }
                    self.inside(body, &on);
                    self.arrive(true);
                    on = self.here(&on);
                }
                self.arrive(false);
            }
            FamilyRef::Control(Control::Once { body }) => {
                self.inside(body, mask);
                self.arrive(false);
            }
            FamilyRef::Control(Control::Break { depth }) => {
                self.jump(self.around - 1 - *depth as usize, false, mask);
            }
            FamilyRef::Control(Control::Continue { depth }) => {
                self.jump(self.around - 1 - *depth as usize, true, mask);
            }
            FamilyRef::Control(Control::Return {}) => self.jump(usize::MAX, false, mask),
            FamilyRef::Together(Together::Reduce { value, op, group }) => {
                self.reduce(v, *value, *op, *group, mask);
            }
            FamilyRef::Thread(Thread::Shuffle { value, mode, lane }) => {
                self.shuffle(v, *value, *mode, *lane, mask);
            }
            FamilyRef::Thread(Thread::Vote { op, cond }) => {
                self.reduce(v, *cond, *op, Group::Warp, mask);
            }
            _ => {
                for t in (0..mask.len()).filter(|t| mask[*t]) {
                    if !self.acts(op, t, mask) {
                        self.vals[t][v.0 as usize] = Val::Lanes(vec![0]);
                        continue;
                    }
                    let val = self.thread(t, v, op);
                    self.vals[t][v.0 as usize] = val;
                }
            }
        }
    }

    /// Checks that the facts in a loop variable's definition are true.
    fn check_facts(&self, var: Value, on: &[bool]) {
        let Some(&Var::LoopVar { min, max, div }) = self.k.op(var).var() else {
            panic!("{var} is no loop variable")
        };
        for t in (0..on.len()).filter(|t| on[*t]) {
            let i = self.i64(t, var);
            assert!(i >= min && i <= max && i % div == 0, "{i} is not in {min}..={max} by {div}");
        }
    }

    fn lanes(&self, t: usize, v: Value) -> &[u64] {
        match &self.vals[t][v.0 as usize] {
            Val::Lanes(l) => l,
            other => panic!("{v} = {:?} is {other:?}", self.k.op(v)),
        }
    }

    fn lane(&self, t: usize, v: Value) -> u64 {
        self.lanes(t, v)[0]
    }

    fn i64(&self, t: usize, v: Value) -> i64 {
        num::int(self.elem(v), self.lane(t, v))
    }

    fn elem(&self, v: Value) -> Scalar {
        self.k.ty(v).elem().unwrap_or_else(|| panic!("{v}: {}", self.k.ty(v)))
    }

    fn int(&self, t: usize, e: &Int) -> i64 {
        let known = e.subst(&mut |v| Some(Int::from(self.i64(t, Value(v.id)))));
        known.as_const().unwrap_or_else(|| panic!("{e} is {known}"))
    }

    fn layout(&self, t: usize, l: &Layout) -> Modes {
        let (shape, stride) = (l.shape().leaves(), l.stride().leaves());
        shape.into_iter().zip(stride).map(|(s, d)| (self.int(t, s), self.int(t, d))).collect()
    }

    fn tensor(&self, t: usize, ty: &TensorType, address: u64, everywhere: bool) -> Val {
        let bounds = ty.bounds.iter();
        Val::Tensor {
            address,
            everywhere,
            layout: self.layout(t, &ty.layout),
            bounds: bounds
                .map(|b| (self.int(t, &b.limit), self.int(t, &b.offset), self.layout(t, &b.layout)))
                .collect(),
        }
    }

    fn param(&self, t: usize, index: u32, ty: &L::Type) -> Val {
        let pe = self.threads[t].pe;
        let base = |base: u32| u64::from(base) << 40;
        let ParamSource { source, kind } = &self.given[index as usize];
        let word = match kind {
            ParamKind::Hidden(hidden) => match *hidden {
                // Only the simulator runs copies of tiles and waits that report themselves.
                Hidden::TensorMap { .. } | Hidden::PeerMaps { .. } | Hidden::Watch {} => return Val::None,
                Hidden::MyPe { .. } => pe as u64,
                Hidden::NPes { .. } => self.w.pes as u64,
                Hidden::TeamHandle { .. } => 0,
                Hidden::Reach { base: b, .. } if !self.w.in_reach => NOWHERE | base(b),
                Hidden::Peers { base: b, .. } | Hidden::Reach { base: b, .. } => TABLE | base(b),
                Hidden::Multicast { base: b, .. } => EVERYWHERE | base(b) | self.start(b),
            },
            ParamKind::User => match &self.w.args[*source as usize] {
                Arg::Int(n) => num::bits(ty.elem().unwrap(), *n),
                Arg::Memory(..) => MEMORY | (pe as u64) << 48 | base(*source) | self.start(*source),
                Arg::Team => return Val::None,
            },
        };
        match ty.view() {
            TypeRef::Tensor(ty) => {
                // The layout can refer to later parameters. In that case only views of the tensor
                // are used.
                let layout =
                    if ty.layout.is_static() { ty.layout.clone() } else { super::layout(&[1], &[0]) };
                self.tensor(t, &TensorType { layout, ..(**ty).clone() }, word, false)
            }
            _ => Val::Lanes(vec![word]),
        }
    }

    /// Memory starts at an address with exactly its declared alignment.
    fn start(&self, arg: u32) -> u64 {
        match &self.w.args[arg as usize] {
            Arg::Memory(_, align) => u64::from(*align),
            other => panic!("{other:?}"),
        }
    }

    fn thread(&mut self, t: usize, v: Value, op: &L::Op) -> Val {
        match op.family() {
            FamilyRef::Arith(op) => self.arith(t, v, op),
            FamilyRef::Thread(Thread::Special { reg, dim }) => {
                Val::Lanes(vec![self.special(t, *reg, *dim).into()])
            }
            FamilyRef::Thread(_)
            | FamilyRef::Team(Team::Barrier { .. })
            | FamilyRef::Together(_)
            | FamilyRef::Tile(_)
            | FamilyRef::Async(_) => Val::None,
            FamilyRef::Var(op) => self.var(t, v, op),
            FamilyRef::Debug(op) => self.debug(t, op),
            FamilyRef::Team(Team::MyPe { .. }) => Val::Lanes(vec![self.threads[t].pe as u64]),
            FamilyRef::Team(Team::NPes { .. }) => Val::Lanes(vec![self.w.pes as u64]),
            FamilyRef::View(op) => self.view(t, v, op),
            FamilyRef::Access(op) => self.access(t, v, op.into()),
            FamilyRef::Remote(op) => self.remote(t, op),
            FamilyRef::Address(op) => self.pointer(t, v, op),
            FamilyRef::Memory(op) => {
                self.note(v, op);
                self.access(t, v, op.into())
            }
            FamilyRef::Call(Call::Function { function, args }) => self.call(t, function, args),
            FamilyRef::Control(_) | FamilyRef::Bridge(_) => panic!("{op:?}"),
        }
    }

    fn special(&self, t: usize, reg: Sreg, dim: Dim) -> u32 {
        let tid = self.threads[t];
        match reg {
            Sreg::ThreadIdx => tid.thread[dim as usize],
            Sreg::BlockIdx => tid.cta[dim as usize],
            Sreg::BlockDim => self.k.block[dim as usize],
            Sreg::GridDim => self.w.grid[dim as usize],
            Sreg::LaneIdx => tid.linear as u32 % 32,
            Sreg::ClusterRank => 0,
        }
    }

    fn arith(&self, t: usize, v: Value, op: &Arith) -> Val {
        let ty = self.k.ty(v);
        let lanewise = |a: &Value, f: &dyn Fn(usize, u64) -> u64| {
            Val::Lanes(self.lanes(t, *a).iter().enumerate().map(|(i, x)| f(i, *x)).collect())
        };
        match op {
            Arith::Const { value } => Val::Lanes(vec![match *value {
                Constant::Bool(b) => b.into(),
                Constant::Int(n) => num::bits(ty.elem().unwrap(), n),
                Constant::Float(x) => num::float_bits(ty.elem().unwrap(), x),
            }]),
            Arith::Unary { op, a } => lanewise(a, &|_, x| num::unary(*op, self.elem(*a), x)),
            Arith::Binary { op, a, b } => {
                let (s, b) = (self.elem(*a), self.lanes(t, *b));
                lanewise(a, &|i, x| num::binary(*op, s, x, b[i]))
            }
            Arith::Compare { op, a, b } => {
                let (s, b) = (self.elem(*a), self.lanes(t, *b));
                lanewise(a, &|i, x| num::compare(*op, s, x, b[i]))
            }
            Arith::Select { c, a, b } => {
                let (c, b) = (self.lanes(t, *c), self.lanes(t, *b));
                lanewise(a, &|i, x| if c[i.min(c.len() - 1)] == 1 { x } else { b[i] })
            }
            Arith::Convert { a } => {
                let (from, to) = (self.elem(*a), ty.elem().unwrap());
                lanewise(a, &|_, x| num::convert(from, to, x))
            }
            Arith::Bitcast { a } => {
                assert_eq!(ty.lanes(), self.k.ty(*a).lanes(), "bit casts keep their lanes here");
                lanewise(a, &|_, x| x)
            }
            Arith::Splat { a } => Val::Lanes(vec![self.lane(t, *a); ty.lanes().unwrap() as usize]),
            Arith::Concat { parts } => {
                Val::Lanes(parts.iter().flat_map(|p| self.lanes(t, *p).to_vec()).collect())
            }
            Arith::Slice { a, first } => {
                let n = ty.lanes().unwrap() as usize;
                Val::Lanes(self.lanes(t, *a)[*first as usize..][..n].to_vec())
            }
            Arith::Extract { a, lane } => Val::Lanes(vec![self.lanes(t, *a)[self.i64(t, *lane) as usize]]),
            Arith::Fma { .. } | Arith::Insert { .. } => panic!("{op:?}"),
        }
    }

    fn var(&mut self, t: usize, v: Value, op: &Var) -> Val {
        match op {
            Var::Param { index } => self.param(t, *index, self.k.ty(v)),
            Var::LocalGet { local } => self.locals[t][local.0 as usize].clone(),
            Var::LocalSet { local, value } => {
                self.locals[t][local.0 as usize] = self.vals[t][value.0 as usize].clone();
                Val::None
            }
            Var::LoopVar { .. } => panic!("{v} is in a block"),
        }
    }

    fn debug(&mut self, t: usize, op: &Debug) -> Val {
        match op {
            Debug::Print { format, args } => {
                let args: Vec<_> = args.iter().map(|a| self.i64(t, *a)).collect();
                self.w.printed.push(format!("{format} {args:?}"));
            }
            Debug::Trap {} => self.w.trapped = true,
            Debug::Assert { cond, .. } => self.w.trapped |= self.i64(t, *cond) == 0,
        }
        Val::None
    }

    fn view(&mut self, t: usize, v: Value, op: &View) -> Val {
        let place = |m: &Self, base: Value| match m.vals[t][base.0 as usize] {
            Val::Tensor { address, everywhere, .. } => (address, everywhere),
            _ => panic!("{base} is no tensor"),
        };
        let k = self.k;
        let Some(ty) = k.ty(v).tensor() else {
            let View::Index { expr } = op else { panic!("{op:?}") };
            return Val::Lanes(vec![self.int(t, expr) as u64]);
        };
        match op {
            View::Index { .. } => panic!("an index of type {ty}"),
            View::Part { base, offset } | View::Distributed { base, offset, .. } => {
                let (address, everywhere) = place(self, *base);
                let bytes = self.int(t, offset) * i64::from(ty.elem.bytes());
                self.tensor(t, ty, address.wrapping_add(bytes as u64), everywhere)
            }
            View::Multicast { base, .. } => self.tensor(t, ty, place(self, *base).0, true),
            View::InCta { base, .. } => self.tensor(t, ty, place(self, *base).0, false),
            View::Peer { base, pe, .. } => {
                let there = place(self, *base).0 & !(0xff << 48) | (self.i64(t, *pe) as u64) << 48;
                self.tensor(t, ty, there, false)
            }
            View::Shared { .. } => {
                let bytes = ty.layout.cosize().as_const().unwrap() * i64::from(ty.elem.bytes());
                let address = self.shared(t, v, bytes as usize);
                self.tensor(t, ty, address, false)
            }
        }
    }

    fn pointer(&mut self, t: usize, v: Value, op: &Address) -> Val {
        Val::Lanes(vec![match op {
            Address::PtrAdd { ptr, bytes } => self.lane(t, *ptr).wrapping_add(self.lane(t, *bytes)),
            Address::FromInt { a } | Address::ToInt { a } | Address::InCta { ptr: a, .. } => self.lane(t, *a),
            Address::Shared { bytes, .. } => self.shared(t, v, *bytes as usize),
        }])
    }

    /// The CTA's memory that an instruction declares.
    fn shared(&mut self, t: usize, v: Value, bytes: usize) -> u64 {
        let id = u64::from(v.0);
        self.shared.entry((self.threads[t].group, id)).or_insert_with(|| vec![0xA5; bytes]);
        SHARED | id << 40
    }

    fn address(&self, t: usize, v: Value) -> u64 {
        match &self.vals[t][v.0 as usize] {
            Val::Lanes(l) => l[0],
            Val::Tensor { address, .. } => *address,
            Val::None => panic!("{v} has no address"),
        }
    }
}
