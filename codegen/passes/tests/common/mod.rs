//! Kernels to lower.

#![allow(dead_code, reason = "each test uses its part")]

use weft_ir::builder::{Built, Range};
use weft_ir::verify::{Verified, verify};
use weft_ir::*;
use weft_passes::{Lowering, Options};

/// Options for sm_90a.
pub fn options(lowering: Lowering) -> Options {
    Options::new(lowering, "sm_90a".parse().unwrap())
}

/// One kernel as a verified module.
pub fn module(kernel: Kernel) -> Verified {
    verify(Module { kernels: vec![kernel], ..Module::default() }).unwrap()
}

/// A static layout.
pub fn layout(shape: &[i64], stride: &[i64]) -> Layout {
    let tuple = |t: &[i64]| IntTuple::tuple(t.iter().copied());
    Layout::new(tuple(shape), tuple(stride)).unwrap()
}

/// The two-shot allreduce of design and examples, as the front end would write it: N is a run-time argument.
pub fn two_shot(elem: Scalar, unroll: u32) -> Built<Kernel> {
    let lanes = i64::from(16 / elem.bytes());
    let mut b = Builder::new("allreduce_two_shot", [512, 1, 1]);
    let n = b.param("N", Type::Scalar(Scalar::I32))?;
    let n = b.symbol(n)?;
    let whole = Layout::new(n.clone(), 1).unwrap();
    let x = b.param("x", Builder::tensor(elem, Space::Symmetric, whole, 16))?;
    let sync = b.param("sync", Type::Barrier)?;
    b.param("team", Type::Team)?;
    let team = TeamRef(3);
    let mc = b.multicast(x, team)?;
    let barrier = Op::TeamBarrier { sync, team, sem: Sem::AcqRel, scope: Scope::Sys };
    b.emit(barrier.clone())?;
    let pes = b.emit(Op::NPes { team })?;
    let me = b.emit(Op::MyPe { team })?;
    let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
    let cta = b.special(Sreg::BlockIdx, Dim::X)?;
    let grid = b.special(Sreg::GridDim, Dim::X)?;
    // Vectors a shard, and a step of the whole grid, in elements.
    let shard = n.ceil_div(&(b.symbol(pes)? * Int::from(lanes))) * Int::from(lanes);
    let thread = (b.symbol(cta)? * Int::from(512) + b.symbol(tid)?) * Int::from(lanes);
    let step = b.symbol(grid)? * Int::from(512 * lanes);
    let base = b.symbol(me)? * shard.clone();
    let (lo, one) = (b.int(Scalar::I64, 0)?, b.int(Scalar::I64, 1)?);
    let hi = b.index(shard.ceil_div(&step))?;
    b.for_loop((lo, hi, one), unroll, Range { min: 0, max: None, div: 1 }, |b, i| {
        let inside = &thread + b.symbol(i)? * &step;
        let at = &base + &inside;
        let part = layout(&[lanes], &[1]);
        let bounds = vec![
            Bound { limit: shard.clone(), offset: inside, layout: part.clone() },
            Bound { limit: n.clone(), offset: at.clone(), layout: part.clone() },
        ];
        let work = b.view(mc, at, part, bounds)?;
        let acc = if elem == Scalar::F16 || elem == Scalar::BF16 { Scalar::F32 } else { elem };
        let v = b.ld_reduce(work, RedOp::Add, acc)?;
        b.mc_store(work, v)?;
        Ok(())
    })?;
    b.emit(barrier)?;
    Ok(b.finish())
}
