//! Kernels that more than one test lowers.

use super::layout;
use weft_ir::builder::{Built, Range};
use weft_ir::*;

/// The values that the front end computes for `zipped_divide` by the team, and then by the threads
/// of the grid.
pub struct Shard {
    pub x: Value,
    pub team: TeamRef,
    pub n: Int,
    pub shard: Int,
    pub me: Int,
    pub thread: Int,
    pub step: Int,
}

/// The parameters `N`, `x`, `sync` and `team`, and the shares of PEs and threads in pieces of
/// `lanes` elements.
pub fn shard(b: &mut Builder, elem: Scalar, lanes: i64) -> Built<Shard> {
    let n = b.param("N", Type::Scalar(Scalar::I32))?;
    let n = b.symbol(n)?;
    let whole = Layout::new(n.clone(), 1).unwrap();
    let x = b.param("x", Builder::tensor(elem, Space::Symmetric, whole, 16))?;
    b.param("sync", Type::Barrier)?;
    b.param("team", Type::Team)?;
    let team = TeamRef(3);
    let pes = b.emit(Team::NPes { team })?;
    let me = b.emit(Team::MyPe { team })?;
    let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
    let cta = b.special(Sreg::BlockIdx, Dim::X)?;
    let grid = b.special(Sreg::GridDim, Dim::X)?;
    let threads = i64::from(b.kernel().block[0]);
    Ok(Shard {
        x,
        team,
        shard: n.ceil_div(&(b.symbol(pes)? * lanes)) * lanes,
        me: b.symbol(me)?,
        thread: (b.symbol(cta)? * threads + b.symbol(tid)?) * lanes,
        step: b.symbol(grid)? * (threads * lanes),
        n,
    })
}

/// A barrier of the team on parameter 2.
pub fn barrier(b: &mut Builder, team: TeamRef) -> Built<()> {
    let sync = b.emit(Var::Param { index: 2 })?;
    b.emit(Team::Barrier { sync, team, sem: Sem::AcqRel, scope: Scope::Sys }).map(drop)
}

/// The two-shot allreduce as the front end would write it. N is a run-time argument.
pub fn two_shot(elem: Scalar, threads: u32, unroll: u32, op: RedOp) -> Built<Kernel> {
    let lanes = i64::from(16 / elem.bytes());
    let mut b = Builder::new("allreduce_two_shot", [threads, 1, 1]);
    let s = shard(&mut b, elem, lanes)?;
    let mc = b.multicast(s.x, s.team)?;
    barrier(&mut b, s.team)?;
    let (lo, one) = (b.int(Scalar::I64, 0)?, b.int(Scalar::I64, 1)?);
    let hi = b.index(s.shard.ceil_div(&s.step))?;
    b.for_loop((lo, hi, one), unroll, Range { min: 0, max: None, div: 1 }, |b, i| {
        let inside = &s.thread + b.symbol(i)? * &s.step;
        let at = &s.me * &s.shard + &inside;
        let part = layout(&[lanes], &[1]);
        let bounds = vec![
            Bound { limit: s.shard.clone(), offset: inside, layout: part.clone() },
            Bound { limit: s.n.clone(), offset: at.clone(), layout: part.clone() },
        ];
        let work = b.view(mc, at, part, bounds)?;
        let wide = (elem == Scalar::F16 || elem == Scalar::BF16) && op == RedOp::Add;
        let v = b.ld_reduce(work, op, if wide { Scalar::F32 } else { elem })?;
        b.mc_store(work, v)?;
        Ok(())
    })?;
    barrier(&mut b, s.team)?;
    Ok(b.finish())
}
