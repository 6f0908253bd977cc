//! Computes the CTAs of a cluster that get a copy.

use crate::edit::Emit;
use weft_ir::builder::Built;
use weft_ir::mixed::Builder;
use weft_ir::tile::line;
use weft_ir::{BinOp, Dim, Int, Scalar, Sreg, Value};

/// For each of these sets of dimensions, the CTAs that differ from this one only in these
/// dimensions. The result is the union of their ranks, as bits.
pub(crate) fn union(b: &mut Builder, lines: &[u32]) -> Built<Value> {
    let mut all = ranks(b, 0)?;
    for dims in lines {
        let ranks = ranks(b, *dims)?;
        all = b.binary(BinOp::Or, all, ranks)?;
    }
    Ok(all)
}

/// The ranks of the CTAs that differ from this one only in these dimensions, as bits (`i32`).
pub(crate) fn ranks(b: &mut Builder, dims: u32) -> Built<Value> {
    let cluster = b.kernel().cluster;
    let (mut first, mut stride) = (Int::ZERO, Int::from(1));
    for (d, extent) in cluster.into_iter().enumerate() {
        let extent = Int::from(i64::from(extent));
        if dims >> d & 1 == 0 && !extent.is(1) {
            let rank = b.special(Sreg::ClusterRank, Dim::X)?;
            let rank = b.symbol(rank)?;
            first = first + rank.floor_div(&stride).rem(&extent) * stride.clone();
        }
        stride = stride * extent;
    }
    let mask = b.i32(line(cluster, dims).into())?;
    if first.is(0) {
        return Ok(mask);
    }
    let first = b.index(first)?;
    let first = b.convert(first, Scalar::I32)?;
    b.binary(BinOp::Shl, mask, first)
}
