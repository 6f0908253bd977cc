//! Runs kernels before and after the passes, all threads of all PEs in lockstep, over bytes of memory.
//!
//! Tensor ops are taken at their word: element by element, each at `offset + layout(coordinate)`, if its bounds allow.
//! Every access is checked: in one allocation, aligned to its size.

#![allow(clippy::needless_range_loop, reason = "a thread's number indexes more than the mask")]

mod remote;

use super::num;
use std::collections::HashMap;
use weft_ir::kernel::Induction;
use weft_ir::*;

/// What a kernel is given.
#[derive(Clone, Debug)]
pub enum Arg {
    /// An integer.
    Int(i64),
    /// Memory, per PE; its first byte is aligned to so many bytes and no more.
    Memory(Vec<Vec<u8>>, u32),
    /// A team of all PEs.
    Team,
}

/// PEs with their memory.
#[derive(Clone, Debug)]
pub struct World {
    pub pes: usize,
    pub grid: [u32; 3],
    pub args: Vec<Arg>,
    /// What was printed.
    pub printed: Vec<String>,
    /// Every access to a pointer: the op and its bytes.
    pub accesses: Vec<(&'static str, u32)>,
    /// A thread trapped.
    pub trapped: bool,
    /// Functions that were called.
    pub calls: Vec<String>,
    /// Whether tables of PEs in reach have any.
    pub in_reach: bool,
}

/// Extents and strides.
type Modes = Vec<(i64, i64)>;
/// Address and bytes.
type At = (u64, u32);
type ReadAt<'f, 'a> = &'f mut dyn FnMut(&mut Machine<'a>, At, bool) -> Vec<u64>;
type WriteAt<'f, 'a> = &'f mut dyn FnMut(&mut Machine<'a>, At, bool, &[u64]);

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

struct Machine<'a> {
    k: &'a Kernel,
    w: &'a mut World,
    threads: Vec<Tid>,
    vals: Vec<Vec<Val>>,
    locals: Vec<Vec<Val>>,
    shared: HashMap<(usize, u64), Vec<u8>>,
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

    /// Launches a kernel on every PE.
    pub fn launch(&mut self, k: &Kernel) {
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
            threads,
            vals: vec![vec![Val::None; k.insts.len()]; n],
            locals: vec![vec![Val::None; k.locals.len()]; n],
            shared: HashMap::new(),
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

impl<'a> Machine<'a> {
    fn block(&mut self, block: &Block, mask: &[bool]) {
        for &v in &block.0 {
            if self.w.trapped {
                return;
            }
            self.inst(v, mask);
        }
    }

    fn inst(&mut self, v: Value, mask: &[bool]) {
        let k = self.k;
        match k.op(v) {
            Op::If { cond, then, otherwise } => {
                let taken: Vec<bool> = (0..mask.len()).map(|t| mask[t] && self.lane(t, *cond) == 1).collect();
                let not: Vec<bool> = (0..mask.len()).map(|t| mask[t] && !taken[t]).collect();
                self.block(then, &taken);
                self.block(otherwise, &not);
            }
            Op::For { var: Induction(var), lo, hi, step, body, .. } => {
                let mut i: Vec<i64> =
                    (0..mask.len()).map(|t| if mask[t] { self.i64(t, *lo) } else { 0 }).collect();
                loop {
                    let on: Vec<bool> = (0..mask.len()).map(|t| mask[t] && i[t] < self.i64(t, *hi)).collect();
                    if !on.contains(&true) || self.w.trapped {
                        break;
                    }
                    for t in (0..mask.len()).filter(|t| on[*t]) {
                        self.vals[t][var.0 as usize] = Val::Lanes(vec![i[t] as u64]);
                    }
                    self.check_facts(*var, &on);
                    self.block(body, &on);
                    for t in (0..mask.len()).filter(|t| on[*t]) {
                        i[t] += self.i64(t, *step);
                    }
                }
            }
            Op::While { head, cond, body } => {
                let mut on = mask.to_vec();
                for round in 0.. {
                    assert!(round < 10_000, "an endless loop");
                    self.block(head, &on);
                    for t in 0..on.len() {
                        on[t] = on[t] && self.lane(t, *cond) == 1;
                    }
                    if !on.contains(&true) || self.w.trapped {
                        break;
                    }
                    self.block(body, &on);
                }
            }
            Op::Reduce { value, op, group } => self.reduce(v, *value, *op, *group, mask),
            Op::Shuffle { value, mode, lane } => self.shuffle(v, *value, *mode, *lane, mask),
            op => {
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

    /// What a loop variable's definition says of its values is true.
    fn check_facts(&self, var: Value, on: &[bool]) {
        let Op::LoopVar { min, max, div } = *self.k.op(var) else { panic!("{var} is no loop variable") };
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

    fn param(&self, t: usize, index: u32) -> Val {
        let pe = self.threads[t].pe;
        let base = |base: u32| u64::from(base) << 40;
        let word = match self.k.params[index as usize].kind {
            ParamKind::Hidden(hidden) => match hidden {
                Hidden::MyPe { .. } => pe as u64,
                Hidden::NPes { .. } => self.w.pes as u64,
                Hidden::TeamHandle { .. } => 0,
                Hidden::Reach { base: b, .. } if !self.w.in_reach => NOWHERE | base(b),
                Hidden::Peers { base: b, .. } | Hidden::Reach { base: b, .. } => TABLE | base(b),
                Hidden::Multicast { base: b, .. } => EVERYWHERE | base(b) | self.start(b),
            },
            ParamKind::User => match &self.w.args[index as usize] {
                Arg::Int(n) => num::bits(self.k.params[index as usize].ty.elem().unwrap(), *n),
                Arg::Memory(..) => MEMORY | (pe as u64) << 48 | base(index) | self.start(index),
                Arg::Team => return Val::None,
            },
        };
        match &self.k.params[index as usize].ty {
            Type::Tensor(ty) if self.k.params[index as usize].kind == ParamKind::User => {
                // The layout may be made of parameters that come later; then only views of it are used.
                let layout =
                    if ty.layout.is_static() { ty.layout.clone() } else { super::layout(&[1], &[0]) };
                self.tensor(t, &TensorType { layout, ..(**ty).clone() }, word, false)
            }
            _ => Val::Lanes(vec![word]),
        }
    }

    /// Memory starts where its declared alignment holds, and no greater one.
    fn start(&self, arg: u32) -> u64 {
        match &self.w.args[arg as usize] {
            Arg::Memory(_, align) => u64::from(*align),
            other => panic!("{other:?}"),
        }
    }

    fn thread(&mut self, t: usize, v: Value, op: &Op) -> Val {
        let (k, ty) = (self.k, self.k.ty(v).clone());
        let lanewise = |m: &Self, a: &Value, f: &dyn Fn(usize, u64) -> u64| {
            Val::Lanes(m.lanes(t, *a).iter().enumerate().map(|(i, x)| f(i, *x)).collect())
        };
        let tid = self.threads[t];
        self.note(v, op);
        match op {
            Op::Const { value } => Val::Lanes(vec![match *value {
                Constant::Bool(b) => b.into(),
                Constant::Int(n) => num::bits(ty.elem().unwrap(), n),
                Constant::Float(x) => num::float_bits(ty.elem().unwrap(), x),
            }]),
            Op::Index { expr } => Val::Lanes(vec![self.int(t, expr) as u64]),
            Op::Unary { op, a } => lanewise(self, a, &|_, x| num::unary(*op, self.elem(*a), x)),
            Op::Binary { op, a, b } => {
                let (s, b) = (self.elem(*a), self.lanes(t, *b).to_vec());
                lanewise(self, a, &|i, x| num::binary(*op, s, x, b[i]))
            }
            Op::Compare { op, a, b } => {
                let (s, b) = (self.elem(*a), self.lanes(t, *b).to_vec());
                lanewise(self, a, &|i, x| num::compare(*op, s, x, b[i]))
            }
            Op::Select { c, a, b } => {
                let (c, b) = (self.lanes(t, *c), self.lanes(t, *b));
                lanewise(self, a, &|i, x| if c[i.min(c.len() - 1)] == 1 { x } else { b[i] })
            }
            Op::Convert { a } => {
                let (from, to) = (self.elem(*a), ty.elem().unwrap());
                lanewise(self, a, &|_, x| num::convert(from, to, x))
            }
            Op::Bitcast { a } => {
                assert_eq!(ty.lanes(), k.ty(*a).lanes().or(Some(1)), "bit casts keep their lanes here");
                if let Val::Tensor { address, .. } = self.vals[t][a.0 as usize] {
                    return Val::Lanes(vec![address]);
                }
                lanewise(self, a, &|_, x| x)
            }
            Op::IntToPtr { a } => lanewise(self, a, &|_, x| x),
            Op::Splat { a } => Val::Lanes(vec![self.lane(t, *a); ty.lanes().unwrap() as usize]),
            Op::Concat { parts } => {
                Val::Lanes(parts.iter().flat_map(|p| self.lanes(t, *p).to_vec()).collect())
            }
            Op::Slice { a, first } => {
                let n = ty.lanes().unwrap() as usize;
                Val::Lanes(self.lanes(t, *a)[*first as usize..][..n].to_vec())
            }
            Op::Extract { a, lane } => Val::Lanes(vec![self.lanes(t, *a)[self.i64(t, *lane) as usize]]),
            Op::Special { reg, dim } => Val::Lanes(vec![
                match reg {
                    Sreg::ThreadIdx => tid.thread[*dim as usize],
                    Sreg::BlockIdx => tid.cta[*dim as usize],
                    Sreg::BlockDim => k.block[*dim as usize],
                    Sreg::GridDim => self.w.grid[*dim as usize],
                    Sreg::LaneIdx => tid.linear as u32 % 32,
                }
                .into(),
            ]),
            Op::Param { index } => self.param(t, *index),
            Op::MyPe { .. } => Val::Lanes(vec![tid.pe as u64]),
            Op::NPes { .. } => Val::Lanes(vec![self.w.pes as u64]),
            Op::PtrAdd { ptr, bytes } => {
                let base = self.address(t, *ptr);
                Val::Lanes(vec![base.wrapping_add(self.lane(t, *bytes))])
            }
            Op::SharedAlloc { .. } => {
                let Type::Tensor(ty) = &ty else { panic!("{ty}") };
                let address = SHARED | u64::from(v.0) << 40;
                let bytes = ty.layout.cosize().as_const().unwrap() * i64::from(ty.elem.bytes());
                self.shared.entry((tid.group, u64::from(v.0))).or_insert_with(|| vec![0xA5; bytes as usize]);
                self.tensor(t, ty, address, false)
            }
            Op::View { base, offset } => {
                let Val::Tensor { address, everywhere, .. } = self.vals[t][base.0 as usize] else {
                    panic!("{base} is no tensor")
                };
                let Type::Tensor(ty) = &ty else { panic!("{ty}") };
                let bytes = self.int(t, offset) * i64::from(ty.elem.bytes());
                self.tensor(t, ty, address.wrapping_add(bytes as u64), everywhere)
            }
            Op::Multicast { base, .. } | Op::Peer { base, .. } => {
                let Val::Tensor { address, .. } = self.vals[t][base.0 as usize] else { panic!() };
                let Type::Tensor(ty) = &ty else { panic!("{ty}") };
                match op {
                    Op::Peer { pe, .. } => {
                        let there = address & !(0xff << 48) | (self.i64(t, *pe) as u64) << 48;
                        self.tensor(t, ty, there, false)
                    }
                    _ => self.tensor(t, ty, address, true),
                }
            }
            Op::LocalGet { local } => self.locals[t][local.0 as usize].clone(),
            Op::LocalSet { local, value } => {
                self.locals[t][local.0 as usize] = self.vals[t][value.0 as usize].clone();
                Val::None
            }
            Op::Print { format, args } => {
                let args: Vec<_> = args.iter().map(|a| self.i64(t, *a)).collect();
                self.w.printed.push(format!("{format} {args:?}"));
                Val::None
            }
            Op::Trap {} => {
                self.w.trapped = true;
                Val::None
            }
            Op::Fence { .. } | Op::GroupBarrier { .. } | Op::TeamBarrier { .. } => Val::None,
            Op::Load { place, .. } => self.read(t, *place, &ty, &mut |m, at, _| m.load(t, at, &ty)),
            Op::LdReduce { place, op, acc, .. } => self.read(t, *place, &ty, &mut |m, at, everywhere| {
                m.ld_reduce(t, at, everywhere, &ty, *op, *acc)
            }),
            Op::Store { place, value, .. } | Op::McStore { place, value, .. } => {
                self.write(t, *place, *value, &mut |m, at, _, x| m.store(t, at, x))
            }
            Op::McRed { place, value, op, .. } | Op::Red { place, value, op, .. } => {
                let s = self.elem(*value);
                self.write(t, *place, *value, &mut |m, at, _, x| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[num::combine(*op, s, old, x[0])])
                })
            }
            Op::Atomic { place, value, op, .. } => {
                let (s, new) = (self.elem(*value), self.lane(t, *value));
                self.read(t, *place, &ty, &mut |m, at, _| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[op.map_or(new, |op| num::combine(op, s, old, new))]);
                    vec![old]
                })
            }
            Op::AtomicCas { place, expected, value, .. } => {
                let (s, want, new) = (self.elem(*value), self.lane(t, *expected), self.lane(t, *value));
                self.read(t, *place, &ty, &mut |m, at, _| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[if old == want { new } else { old }]);
                    vec![old]
                })
            }
            Op::Call { function, args } => self.call(t, function, args),
            other => self.remote(t, other).unwrap_or_else(|| panic!("{other:?}")),
        }
    }

    fn note(&mut self, v: Value, op: &Op) {
        let (place, ty) = match op {
            Op::Load { place, .. } | Op::LdReduce { place, .. } => (place, self.k.ty(v)),
            Op::Store { place, value, .. }
            | Op::McStore { place, value, .. }
            | Op::McRed { place, value, .. }
            | Op::Red { place, value, .. } => (place, self.k.ty(*value)),
            _ => return,
        };
        if matches!(self.k.ty(*place), Type::Pointer(_)) {
            self.w.accesses.push((op.mnemonic(), ty.elem().unwrap().bytes() * ty.lanes().unwrap()));
        }
    }

    fn address(&self, t: usize, v: Value) -> u64 {
        match &self.vals[t][v.0 as usize] {
            Val::Lanes(l) => l[0],
            Val::Tensor { address, .. } => *address,
            Val::None => panic!("{v} has no address"),
        }
    }

    /// Of a tensor element by element, of a pointer at once.
    fn read(&mut self, t: usize, place: Value, ty: &Type, read: ReadAt<'_, 'a>) -> Val {
        let bytes = ty.elem().unwrap().bytes();
        let Val::Tensor { address, everywhere, layout, bounds } = self.vals[t][place.0 as usize].clone()
        else {
            let address = self.lane(t, place);
            let all = bytes * ty.lanes().unwrap();
            return Val::Lanes(read(self, (address, all), address >> 60 == EVERYWHERE >> 60));
        };
        let mut lanes = Vec::new();
        for i in 0..i64::from(ty.lanes().unwrap()) {
            let inside = bounds.iter().all(|(limit, offset, l)| offset + at(l, i) < *limit);
            let address = address.wrapping_add((at(&layout, i) * i64::from(bytes)) as u64);
            lanes.push(if inside { read(self, (address, bytes), everywhere)[0] } else { 0 });
        }
        Val::Lanes(lanes)
    }

    fn write(&mut self, t: usize, place: Value, value: Value, write: WriteAt<'_, 'a>) -> Val {
        let x = self.lanes(t, value).to_vec();
        let bytes = self.elem(value).bytes();
        let mut one = |m: &mut Self, address: u64, everywhere: bool, x: &[u64]| {
            let width = bytes * x.len() as u32;
            for address in m.copies(address, everywhere) {
                write(m, (address, width), everywhere, x);
            }
        };
        let Val::Tensor { address, everywhere, layout, bounds } = self.vals[t][place.0 as usize].clone()
        else {
            let address = self.lane(t, place);
            // As one access it must be aligned; what it does, it does to each element.
            self.check(t, address, bytes * x.len() as u32, "write");
            let everywhere = address >> 60 == EVERYWHERE >> 60;
            for (i, x) in x.iter().enumerate() {
                one(self, address + i as u64 * u64::from(bytes), everywhere, &[*x]);
            }
            return Val::None;
        };
        for (i, x) in x.iter().enumerate() {
            let i = i as i64;
            if bounds.iter().all(|(limit, offset, l)| offset + at(l, i) < *limit) {
                let address = address.wrapping_add((at(&layout, i) * i64::from(bytes)) as u64);
                one(self, address, everywhere, &[*x]);
            }
        }
        Val::None
    }

    /// The addresses that a store goes to.
    fn copies(&self, address: u64, everywhere: bool) -> Vec<u64> {
        if !everywhere {
            return vec![address];
        }
        let offset = address & ((1 << 48) - 1);
        (0..self.w.pes as u64).map(|pe| MEMORY | pe << 48 | offset).collect()
    }

    fn ld_reduce(
        &mut self,
        t: usize,
        (address, width): (u64, u32),
        everywhere: bool,
        ty: &Type,
        op: RedOp,
        acc: Scalar,
    ) -> Vec<u64> {
        assert!(everywhere, "{address:x} is no multicast address");
        let elem = ty.elem().unwrap();
        let acc = if acc.is_fp8() { Scalar::F16 } else { acc };
        self.check(t, self.copies(address, true)[0], width, "ld_reduce");
        let n = width / elem.bytes();
        let one = |m: &mut Self, i: u32| {
            let mut sum = None;
            for address in m.copies(address, true) {
                let x = m.load_one(t, (address + u64::from(i * elem.bytes()), elem.bytes()), elem);
                let x = num::convert(elem, acc, x);
                sum = Some(sum.map_or(x, |sum| num::combine(op, acc, sum, x)));
            }
            num::convert(acc, elem, sum.unwrap())
        };
        (0..n).map(|i| one(self, i)).collect()
    }

    fn load_one(&mut self, t: usize, at: (u64, u32), s: Scalar) -> u64 {
        self.load(t, at, &Type::Scalar(s))[0]
    }

    fn load(&mut self, t: usize, (address, width): (u64, u32), ty: &Type) -> Vec<u64> {
        if address >> 60 == NOWHERE >> 60 {
            return vec![0];
        }
        if address >> 60 == TABLE >> 60 {
            let (arg, entry) = ((address >> 40 & 0xff) as u32, address & 0xff_ffff_ffff);
            assert!(width == 8 && entry % 8 == 0 && entry / 8 < self.w.pes as u64, "entry {entry} of {arg}");
            return vec![MEMORY | (entry / 8) << 48 | u64::from(arg) << 40 | self.start(arg)];
        }
        let bytes = self.bytes(t, address, width, "load").to_vec();
        bytes.chunks(ty.elem().unwrap().bytes() as usize).map(word).collect()
    }

    fn store(&mut self, t: usize, (address, width): (u64, u32), x: &[u64]) {
        let each = width as usize / x.len();
        let bytes = self.bytes(t, address, width, "store");
        for (to, x) in bytes.chunks_mut(each).zip(x) {
            to.copy_from_slice(&x.to_le_bytes()[..each]);
        }
    }

    fn check(&mut self, t: usize, address: u64, width: u32, what: &'static str) {
        let first = match address >> 60 == EVERYWHERE >> 60 {
            true => self.copies(address, true)[0],
            false => address,
        };
        self.bytes(t, first, width, what);
    }

    /// The bytes at an address: all in one allocation, and aligned.
    fn bytes(&mut self, t: usize, address: u64, width: u32, what: &'static str) -> &mut [u8] {
        assert!(address.is_multiple_of(width.into()), "{what} of {width} bytes at {address:#x}");
        assert!(width <= 16, "{what} of {width} bytes");
        let offset = address & 0xff_ffff_ffff;
        let arg = address >> 40 & 0xff;
        if address >> 60 == SHARED >> 60 {
            let group = self.threads[t].group;
            let memory = self.shared.get_mut(&(group, arg)).unwrap();
            return &mut memory[offset as usize..][..width as usize];
        }
        assert_eq!(address >> 60, MEMORY >> 60, "{what} at {address:#x}");
        let pe = (address >> 48 & 0xff) as usize;
        let start = self.start(arg as u32);
        let Arg::Memory(m, _) = &mut self.w.args[arg as usize] else { panic!("no memory at {address:#x}") };
        let size = m[pe].len() as u64;
        let inside = offset >= start && offset - start + u64::from(width) <= size;
        assert!(
            inside,
            "{what} of {width} bytes at {} of {size} of argument {arg} of PE {pe}",
            offset as i64 - start as i64
        );
        &mut m[pe][(offset - start) as usize..][..width as usize]
    }

    fn reduce(&mut self, v: Value, value: Value, op: RedOp, group: Group, mask: &[bool]) {
        let s = self.elem(value);
        let work = if s.bits() == 16 && s.is_float() { Scalar::F32 } else { s };
        let mut totals: HashMap<(usize, usize), Vec<u64>> = HashMap::new();
        let key = |tid: Tid| (tid.group, if group == Group::Warp { tid.linear / 32 } else { 0 });
        for t in 0..mask.len() {
            assert!(mask[t], "a reduction without all threads");
            let x: Vec<u64> = self.lanes(t, value).iter().map(|x| num::convert(s, work, *x)).collect();
            let total = totals.entry(key(self.threads[t]));
            total
                .and_modify(|sum| {
                    sum.iter_mut().zip(&x).for_each(|(a, b)| *a = num::combine(op, work, *a, *b))
                })
                .or_insert(x.clone());
        }
        for t in 0..mask.len() {
            let total = totals[&key(self.threads[t])].iter().map(|x| num::convert(work, s, *x)).collect();
            self.vals[t][v.0 as usize] = Val::Lanes(total);
        }
    }

    fn shuffle(&mut self, v: Value, value: Value, mode: ShuffleMode, lane: Value, mask: &[bool]) {
        let threads = self.k.threads() as usize;
        let mut out = Vec::new();
        for t in 0..mask.len() {
            assert!(mask[t], "a shuffle without all lanes");
            let (own, by) = (self.threads[t].linear % 32, self.i64(t, lane) as usize);
            let from = match mode {
                ShuffleMode::Idx => by,
                ShuffleMode::Xor => own ^ by,
                ShuffleMode::Down => own + by,
                ShuffleMode::Up => own.wrapping_sub(by),
            };
            let warp = self.threads[t].linear / 32 * 32;
            // Lanes outside the warp give one's own; those that do not exist, rubbish.
            out.push(match warp.checked_add(from).filter(|_| from < 32) {
                None => self.lanes(t, value).to_vec(),
                Some(linear) if linear < threads => {
                    self.lanes(self.threads[t].group + linear, value).to_vec()
                }
                Some(_) => vec![0xDEAD_BEEF; self.lanes(t, value).len()],
            });
        }
        for (t, lanes) in out.into_iter().enumerate() {
            self.vals[t][v.0 as usize] = Val::Lanes(lanes);
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))
}
