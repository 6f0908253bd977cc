//! Asynchronous copies of threads (`cp.async`) and their groups.

use super::lift::custom;
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::access::Space;
use crate::exec::asynchronous::{Segment, World};
use crate::exec::{Context, Fault, Flow, Op, Operation, PredSrc, Src, fault};
use crate::memory::Spot;
use crate::model::lanes;
use crate::types::Ty;

const SHARED: Class = ("ss", &["shared", "shared::cta"]);
const PREFETCH: Class = ("prefetch", &["L2::64B", "L2::128B", "L2::256B"]);

pub(super) static FAMILY: Family = Family {
    title: "Asynchronous copies",
    section: "9.7.9.25.3",
    rows: &[
        row(
            "cp.async.cop.ss.global{.L2::cache_hint}{.prefetch}",
            "[d], [a], cp-size{, src-size-or-ignore}{, policy}",
            &[("cop", &["ca", "cg"]), SHARED, PREFETCH],
            copy,
        ),
        row("cp.async.commit_group", "", &[], |_| {
            Ok(custom(|cx| {
                commit(cx, false);
                Ok(Flow::Next)
            }))
        }),
        row("cp.async.wait_group", "n", &[], |s| {
            let n = u32::try_from(s.immediate(0)?).unwrap_or(u32::MAX);
            Ok(custom(move |cx| {
                let (slot, active) = (cx.slot, cx.active);
                let mut world = World { memory: cx.memory, check: cx.check.as_deref_mut() };
                cx.asynchronous.wait_copies(&mut world, slot, active, n);
                Ok(Flow::Next)
            }))
        }),
        row("cp.async.wait_all", "", &[], |_| {
            Ok(custom(|cx| {
                commit(cx, false);
                let (slot, active) = (cx.slot, cx.active);
                let mut world = World { memory: cx.memory, check: cx.check.as_deref_mut() };
                cx.asynchronous.wait_copies(&mut world, slot, active, 0);
                Ok(Flow::Next)
            }))
        }),
        row("cp.async.mbarrier.arrive{.noinc}{.ss}.b64", "[a]", &[SHARED], arrive),
    ],
};

/// Executes `commit_group` of the active lanes.
pub(super) fn commit(cx: &mut Context<'_>, bulk: bool) {
    let (slot, active, pc) = (cx.slot, cx.active, cx.pc);
    let mut world = World { memory: cx.memory, check: cx.check.as_deref_mut() };
    cx.asynchronous.commit(&mut world, slot, active, pc, bulk);
}

/// The part of the source that is read.
enum Amount {
    All,
    Bytes(Src),
    /// Nothing is read if the predicate is true.
    Unless(PredSrc),
}

struct Copy {
    dst: Address,
    src: Address,
    bytes: usize,
    amount: Amount,
}

fn copy(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let bytes = s.immediate(2)? as usize;
    let possible: &[usize] = if s.get("cop") == Some("cg") { &[16] } else { &[4, 8, 16] };
    if !possible.contains(&bytes) {
        return issue(
            codes::BAD_OPERANDS,
            format!("the copy has {bytes} bytes"),
            "copy 4, 8 or 16 bytes with cp.async.ca, or 16 bytes with cp.async.cg",
        );
    }
    let (dst, _) = s.address(0, Space::Shared)?;
    let (src, _) = s.address(1, Space::Global)?;
    let hint = usize::from(s.has("L2::cache_hint"));
    let amount = match s.operands.len().checked_sub(3 + hint) {
        Some(0) => Amount::All,
        Some(1) => match s.src(3, Ty::B32) {
            Ok(n) => Amount::Bytes(n),
            Err(e) => Amount::Unless(s.pred_src(3).map_err(|_| e)?),
        },
        _ => {
            return issue(
                codes::BAD_OPERANDS,
                "the operands do not fit the modifiers",
                "a cache policy needs `.L2::cache_hint`",
            );
        }
    };
    s.cache_hint(s.operands.len() - hint)?;
    Ok(Box::new(Copy { dst, src, bytes, amount }))
}

impl Operation for Copy {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (dst, src) = (self.dst.lanes(cx), self.src.lanes(cx));
        let n = self.bytes;
        let mut pieces = [None; 32];
        for lane in lanes(cx.active) {
            let read = match self.amount {
                Amount::All => n,
                Amount::Bytes(s) => cx.src(s)[lane] as usize,
                Amount::Unless(p) if cx.pred(p) >> lane & 1 != 0 => 0,
                Amount::Unless(_) => n,
            };
            if read > n {
                let message = format!("cp.async has a src-size of {read} bytes, but a cp-size of {n}");
                return Err(fault(codes::UNDEFINED, lane, message, "use a src-size of at most cp-size"));
            }
            let to = cx.spot(Space::Shared, dst[lane], (n, n), true, lane)?;
            let mut segments = [None; 2];
            if read > 0 {
                let from = cx.spot(Space::Global, src[lane], (read, n), false, lane)?;
                segments[0] = Some(Segment { from: Some(from), to, len: read });
            }
            if read < n {
                let to = Spot { at: to.at + read, ..to };
                segments[1] = Some(Segment { from: None, to, len: n - read });
            }
            pieces[lane] = Some(segments);
        }
        cx.issue_copies(&pieces);
        Ok(Flow::Next)
    }
}

/// Builds the arrival on an mbarrier after the completion of all earlier copies. Without `.noinc`,
/// the mbarrier expects one more arrival for it.
fn arrive(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (address, space) = s.address(0, s.space())?;
    let increments = !s.has("noinc");
    Ok(custom(move |cx| {
        let addresses = address.lanes(cx);
        let mut at = Vec::new();
        for lane in lanes(cx.active) {
            let spot = cx.mbarrier(space, addresses[lane], lane)?;
            if increments {
                super::mbarrier::change(cx, spot, lane, false, |b| b.expect_one_more())?;
            }
            cx.require(spot, lane)?;
            at.push((lane, spot));
        }
        cx.issue_arrivals(&at)?;
        Ok(Flow::Next)
    }))
}
