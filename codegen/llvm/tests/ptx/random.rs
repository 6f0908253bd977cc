//! Tests with kernels of random ops. Everything that the verifier accepts is compiled or rejected,
//! LLVM's own verifier accepts it (in debug builds), and ptxas accepts the compiled text.

use crate::harness::*;
use proptest::prelude::*;
use weft_ir::builder::{Built, Range};
use weft_ir::machine::{Builder, Kernel, Module, Type};
use weft_ir::{
    Arith, BinOp, CmpOp, Control, LocalId, Memory, RedOp, Scalar, Scope, Sem, ShuffleMode, Thread, UnOp,
    Value, ValueType,
};
use weft_llvm::{OptLevel, Options, emit};

/// Makes choices from bytes, and returns 0 when they are used up.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        let byte = |it: &mut std::slice::Iter<'_, u8>| usize::from(it.next().copied().unwrap_or(0));
        (byte(&mut self.0) + 256 * byte(&mut self.0)) % n.max(1)
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The numbers of lanes that occur, including some that no access has.
const LANES: [u32; 8] = [1, 1, 2, 3, 4, 8, 16, 33];

struct Maker<'a, 'b> {
    choices: Choices<'a>,
    b: &'b mut Builder,
    at: Value,
    /// The values in scope.
    known: Vec<Value>,
    locals: Vec<LocalId>,
    /// The surrounding items that jumps can leave, outermost first: whether each is a loop.
    around: Vec<bool>,
}

impl Maker<'_, '_> {
    fn ty(&mut self) -> Type {
        let elem = self.choices.of(Scalar::ALL);
        Type::lanes_of(elem, self.choices.of(&LANES))
    }

    fn value(&mut self) -> Value {
        let i = self.choices.below(self.known.len());
        self.known[i]
    }

    /// A value of the type: a known value, or a zero.
    fn value_of(&mut self, ty: &Type) -> Built<Value> {
        let fit: Vec<_> = self.known.iter().copied().filter(|v| self.b.ty(*v) == ty).collect();
        if fit.is_empty() { self.b.zero(ty) } else { Ok(self.choices.of(&fit)) }
    }

    fn condition(&mut self) -> Built<Value> {
        let (a, op) = (self.value(), self.choices.of(CmpOp::ALL));
        let scalar = match self.b.ty(a).elem().filter(|s| !s.is_fp8()) {
            Some(s) => self.b.emit_as(Arith::Slice { a, first: 0 }, Type::Scalar(s))?,
            None => self.b.int(Scalar::I32, 1)?,
        };
        let ty = self.b.ty(scalar).clone();
        let other = self.value_of(&ty)?;
        self.b.compare(op, scalar, other)
    }

    /// Emits ops in a block of their own. The values that they define are not known after it.
    fn inner(&mut self, depth: u32) -> Built<()> {
        let before = self.known.len();
        for _ in 0..self.choices.below(4) {
            // Ops that the typing rules reject are left out.
            let _ = self.op(depth + 1);
        }
        if self.choices.below(4) == 1 {
            self.jump()?;
        }
        self.known.truncate(before);
        Ok(())
    }

    /// Emits a jump, if it has a target.
    fn jump(&mut self) -> Built<()> {
        let depth = self.choices.below(self.around.len() + 1);
        let to = self.around.iter().rev().nth(depth).copied();
        let (depth, again) = (depth as u32, self.choices.below(2) == 0);
        let op = match to {
            Some(true) if again => Control::Continue { depth },
            Some(_) => Control::Break { depth },
            None => Control::Return {},
        };
        self.b.emit(op).map(drop)
    }

    fn control(&mut self, depth: u32) -> Built<()> {
        if self.choices.below(2) == 0 {
            let cond = self.condition()?;
            self.b.open();
            self.inner(depth)?;
            let then = self.b.close();
            self.b.open();
            self.inner(depth)?;
            let otherwise = self.b.close();
            return self.b.emit(Control::If { cond, then, otherwise }).map(|_| ());
        }
        if self.choices.below(3) == 0 {
            self.around.push(false);
            self.b.open();
            let made = self.inner(depth);
            let body = self.b.close();
            self.around.pop();
            made?;
            return self.b.emit(Control::Once { body }).map(drop);
        }
        let int = Type::Scalar(Scalar::I64);
        let bounds = (self.value_of(&int)?, self.value_of(&int)?, self.value_of(&int)?);
        let unroll = self.choices.of(&[1, 1, 2, 5]);
        let around = [&self.around[..], &[true]].concat();
        let Maker { choices, b, at, known, locals, .. } = self;
        let (at, before) = (*at, known.len());
        b.for_loop(bounds, unroll, Range { min: i64::MIN, max: None, div: 1 }, |b, i| {
            known.push(i);
            let rest = Choices(choices.0.clone());
            let known_here = std::mem::take(known);
            let mut m = Maker { choices: rest, b, at, known: known_here, locals: locals.clone(), around };
            let done = m.inner(depth);
            *known = m.known;
            done
        })?;
        self.known.truncate(before);
        Ok(())
    }

    fn op(&mut self, depth: u32) -> Built<()> {
        let a = self.value();
        let ty = self.b.ty(a).clone();
        let made = match self.choices.below(if depth < 3 { 16 } else { 15 }) {
            0 | 1 => {
                let (op, other) = (self.choices.of(BinOp::ALL), self.value_of(&ty)?);
                self.b.binary(op, a, other)?
            }
            2 => {
                let op = self.choices.of(UnOp::ALL);
                self.b.unary(op, a)?
            }
            3 => {
                let (b, c) = (self.value_of(&ty)?, self.value_of(&ty)?);
                self.b.emit(Arith::Fma { a, b, c })?
            }
            4 => {
                let (op, other) = (self.choices.of(CmpOp::ALL), self.value_of(&ty)?);
                self.b.compare(op, a, other)?
            }
            5 => {
                let (c, other) = (self.value(), self.value_of(&ty)?);
                self.b.select(c, a, other)?
            }
            6 | 7 => {
                let to = self.choices.of(Scalar::ALL);
                self.b.convert(a, to)?
            }
            8 => {
                let to = self.ty();
                self.b.emit_as(Arith::Bitcast { a }, to)?
            }
            9 => {
                let to = self.ty();
                let first = self.choices.below(4) as u32;
                match self.choices.below(2) {
                    0 => self.b.emit_as(Arith::Splat { a }, to)?,
                    _ => self.b.emit_as(Arith::Slice { a, first }, to)?,
                }
            }
            10 => {
                let other = self.value_of(&ty)?;
                let lanes = ty.lanes().unwrap_or(1) * 2;
                self.b.emit_as(Arith::Concat { parts: vec![a, other] }, ty.with_lanes(lanes))?
            }
            11 => {
                let lane = self.value_of(&Type::Scalar(Scalar::I64))?;
                let elem = self.b.emit(Arith::Extract { a, lane })?;
                self.b.emit(Arith::Insert { a, lane, elem })?
            }
            12 => {
                let (lane, mode) =
                    (self.value_of(&Type::Scalar(Scalar::I32))?, self.choices.of(ShuffleMode::ALL));
                self.b.emit(Thread::Shuffle { value: a, mode, lane })?
            }
            13 => return self.memory(a),
            14 => {
                let local = self.choices.of(&self.locals.clone());
                let ty = self.b.kernel().locals[local].ty.clone();
                let new = self.value_of(&ty)?;
                self.b.set(local, new)?;
                self.b.get(local)?
            }
            _ => return self.control(depth),
        };
        self.known.push(made);
        Ok(())
    }

    fn memory(&mut self, a: Value) -> Built<()> {
        let ty = self.b.ty(a).clone();
        // With fewer bytes per access, most accesses would not exist.
        if !ty.lanes().zip(ty.elem()).is_some_and(|(n, s)| n * s.bytes() <= 16 && n != 3) {
            return Ok(());
        }
        let (place, scope) =
            (pointer(self.b, self.at, 16 * self.choices.below(8) as i64)?, self.choices.of(Scope::ALL));
        match self.choices.below(5) {
            0 => {
                let sem = self.choices.of(&[Sem::Weak, Sem::Relaxed, Sem::Acquire]);
                let x = self.b.emit_as(Memory::Load { ptr: place, sem, scope }, ty)?;
                self.known.push(x);
            }
            1 | 2 => {
                let sem = self.choices.of(&[Sem::Weak, Sem::Relaxed, Sem::Release]);
                self.b.emit(Memory::Store { ptr: place, value: a, sem, scope })?;
            }
            3 if matches!(ty.elem(), Some(Scalar::I32 | Scalar::U64 | Scalar::F32))
                && ty.lanes() == Some(1) =>
            {
                let sem = self.choices.of(&[Sem::Relaxed, Sem::Release]);
                self.b.emit(Memory::Red { ptr: place, value: a, op: RedOp::Add, sem, scope })?;
            }
            _ => {
                let sem = self.choices.of(&[Sem::Acquire, Sem::Release, Sem::AcqRel, Sem::SeqCst]);
                self.b.emit(Thread::Fence { sem, scope })?;
            }
        }
        Ok(())
    }
}

trait WithLanes {
    fn with_lanes(&self, lanes: u32) -> Type;
}

impl WithLanes for Type {
    fn with_lanes(&self, lanes: u32) -> Type {
        Type::lanes_of(self.elem().unwrap_or(Scalar::I32), lanes)
    }
}

fn random(bytes: &[u8]) -> Kernel {
    kernel("random", |b, at| {
        let mut known = Vec::new();
        for s in Scalar::ALL {
            known.push(unknown(b, at, Type::Scalar(*s))?);
            let there = pointer(b, at, 16)?;
            known.push(unknown(b, there, Type::lanes_of(*s, 16 / s.bytes()))?);
        }
        let locals = [Type::Scalar(Scalar::I32), Type::Vector(Scalar::F32, 4), Type::Vector(Scalar::Bool, 2)]
            .into_iter()
            .map(|ty| b.local("v", ty))
            .collect();
        let mut m = Maker { choices: Choices(bytes.iter()), b, at, known, locals, around: vec![] };
        for _ in 0..m.choices.below(60) {
            let _ = m.op(0);
        }
        // The values that were computed last are stored, so that not all code is removed.
        for v in m.known.clone().into_iter().rev().take(8) {
            m.memory_of(v)?;
        }
        Ok(())
    })
}

impl Maker<'_, '_> {
    fn memory_of(&mut self, v: Value) -> Built<()> {
        let Some((s, n)) = self.b.ty(v).elem().zip(self.b.ty(v).lanes()) else { return Ok(()) };
        for lane in 0..n.min(4) {
            let one = self.b.emit_as(Arith::Slice { a: v, first: lane }, Type::Scalar(s))?;
            let out = pointer(self.b, self.at, 8 * self.b.kernel().insts.len() as i64)?;
            self.b.store(out, one)?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn verified_modules_are_compiled_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..900), level in 0usize..4) {
        let k = random(&bytes);
        // The verifier rejects a shuffle in a divergent branch.
        if let Ok(module) = weft_ir::verify::verify(Module { kernels: vec![k], files: vec![] }) {
            let opt = [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3][level];
            for arch in ["sm_90a", "sm_100a"] {
                match emit(&module, &Options::new(target(arch)).opt(opt)) {
                    Ok(out) => accepted(&out.ptx, arch),
                    Err(e) => {
                        prop_assert!(e.help.is_some(), "{}", e);
                        prop_assert_ne!(e.code, weft_llvm::codes::LLVM_FAILED, "{}", e);
                    }
                }
            }
        }
    }
}
