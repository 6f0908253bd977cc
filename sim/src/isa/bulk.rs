//! Bulk copies between global memory and shared memories, and the stores of one element that complete on an mbarrier.

use super::cp_async::commit;
use super::lift::custom;
use super::reduce::{combine, combine_bulk};
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::access::{Space, put_le};
use crate::exec::asynchronous::{Completion, Reduction, Segment, Transfer, World};
use crate::exec::{Context, Fault, Flow, Op, Operation, Src, access_fault, fault};
use crate::memory::Spot;
use crate::model::lanes;
use crate::types::Ty;
use std::sync::Arc;

const TO_SHARED: Class = ("ss", &["shared::cluster", "shared::cta"]);
const CLUSTER: Class = ("ss", &["shared::cluster"]);
const SEM: Class = ("sem", &["weak", "relaxed"]);
const SCOPE: Class = ("scope", &["gpu", "sys"]);
const MULTIMEM_OP: Class = ("op", &["and", "or", "xor", "add", "min", "max"]);
const REMOTE_OP: Class = ("op", &["and", "or", "xor", "add", "inc", "dec", "min", "max"]);

pub(super) static FAMILY: Family = Family {
    title: "Bulk copies",
    section: "9.7.9.25.4",
    rows: &[
        row(
            "cp.async.bulk.ss.global.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}",
            "[d], [a], size, [mbar]{, ctaMask}{, policy}",
            &[TO_SHARED],
            load,
        ),
        row(
            "cp.async.bulk.ss.shared::cta.mbarrier::complete_tx::bytes",
            "[d], [a], size, [mbar]",
            &[CLUSTER],
            |s| send(s, None),
        ),
        row(
            "cp.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}{.cp_mask}",
            "[d], [a], size{, policy}{, byteMask}",
            &[],
            |s| store(s, None),
        ),
        row(
            "cp.reduce.async.bulk.ss.shared::cta.mbarrier::complete_tx::bytes.op.type",
            "[d], [a], size, [mbar]",
            &[CLUSTER, REMOTE_OP, ("type", &["b32", "u32", "s32", "u64"])],
            |s| {
                let r = remote_reduction(s)?;
                send(s, Some(r))
            },
        ),
        row(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}.op.type",
            "[d], [a], size{, policy}",
            &[REMOTE_OP, ("type", &["b32", "b64", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"])],
            |s| {
                let r = global_reduction(s)?;
                store(s, Some(r))
            },
        ),
        row(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group{.L2::cache_hint}.add.noftz.type",
            "[d], [a], size{, policy}",
            &[("type", &["f16", "bf16"])],
            |s| {
                let ty = s.ty("type")?;
                let combine = combine_bulk("add", ty)?;
                store(s, Some(Reduction { combine, element: ty.bytes(), of_system: of_system(s) }))
            },
        ),
        row(
            "multimem.cp.async.bulk{.sem}{.scope}.global.shared::cta.bulk_group{.b128}",
            "[d], [a], size",
            &[SEM, SCOPE],
            |s| broadcast(s, None),
        ),
        row(
            "multimem.cp.reduce.async.bulk{.sem}{.scope}.global.shared::cta.bulk_group.op.type",
            "[d], [a], size",
            &[
                SEM,
                SCOPE,
                MULTIMEM_OP,
                ("type", &["b32", "b64", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"]),
            ],
            |s| {
                let r = global_reduction(s)?;
                broadcast(s, Some(r))
            },
        ),
        row(
            "multimem.cp.reduce.async.bulk{.sem}{.scope}.global.shared::cta.bulk_group.add.noftz.type",
            "[d], [a], size",
            &[SEM, SCOPE, ("type", &["f16", "bf16"])],
            |s| {
                let ty = s.ty("type")?;
                let combine = combine_bulk("add", ty)?;
                broadcast(s, Some(Reduction { combine, element: ty.bytes(), of_system: of_system(s) }))
            },
        ),
        row("cp.async.bulk.prefetch.L2.global{.L2::cache_hint}", "[a], size{, policy}", &[], |s| {
            s.address(0, Space::Global)?;
            s.src(1, Ty::B32)?;
            s.cache_hint(2)?;
            Ok(custom(|_| Ok(Flow::Next)))
        }),
        row("cp.async.bulk.commit_group", "", &[], |_| {
            Ok(custom(|cx| {
                commit(cx, true);
                Ok(Flow::Next)
            }))
        }),
        row("cp.async.bulk.wait_group{.read}", "n", &[], |s| {
            let (n, read) = (u32::try_from(s.immediate(0)?).unwrap_or(u32::MAX), s.has("read"));
            Ok(custom(move |cx| {
                let (slot, active) = (cx.slot, cx.active);
                let mut world = World { memory: cx.memory, check: cx.check.as_deref_mut() };
                cx.asynchronous.wait_bulk(&mut world, slot, active, n, read);
                Ok(Flow::Next)
            }))
        }),
        row(
            "st.async{.weak}{.ss}{.mbarrier::complete_tx::bytes}{.vec}.type",
            "[a], b, [mbar]",
            &[
                CLUSTER,
                ("vec", &["v2", "v4"]),
                ("type", &["b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"]),
            ],
            |s| one(s, None),
        ),
        row(
            "red.async.relaxed.cluster{.ss}.mbarrier::complete_tx::bytes.op.type",
            "[a], b, [mbar]",
            &[CLUSTER, REMOTE_OP, ("type", &["b32", "u32", "s32", "u64"])],
            |s| {
                let r = remote_reduction(s)?;
                one(s, Some(r))
            },
        ),
    ],
};

/// The types of each reduction in shared memory of the cluster.
const REMOTE: &[(&str, &[&str])] = &[
    ("add", &["u32", "s32", "u64"]),
    ("min", &["u32", "s32"]),
    ("max", &["u32", "s32"]),
    ("inc", &["u32"]),
    ("dec", &["u32"]),
    ("and", &["b32"]),
    ("or", &["b32"]),
    ("xor", &["b32"]),
];

/// The types of each reduction in global memory; sums of half precision have `.noftz`.
const GLOBAL: &[(&str, &[&str])] = &[
    ("add", &["u32", "s32", "u64", "f32", "f64"]),
    ("min", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
    ("max", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
    ("inc", &["u32"]),
    ("dec", &["u32"]),
    ("and", &["b32", "b64"]),
    ("or", &["b32", "b64"]),
    ("xor", &["b32", "b64"]),
];

/// Whether a reduction is atomic for the whole system.
fn of_system(s: &Site<'_, '_, '_>) -> bool {
    s.get("scope") == Some("sys")
}

/// The operation and type of a reduction, which must be among `legal`.
fn pair(s: &Site<'_, '_, '_>, legal: &[(&str, &[&str])]) -> Result<(&'static str, Ty), Issue> {
    let (op, ty) = (s.text("op"), s.text("type"));
    let types = legal.iter().find(|(o, _)| *o == op).map_or(&[][..], |(_, t)| t);
    if !types.contains(&ty) {
        let help = format!("`.{op}` has the types {}", types.join(", "));
        return issue(
            codes::UNKNOWN_MODIFIER,
            format!("`.{op}.{ty}` is not a reduction of this instruction"),
            help,
        );
    }
    Ok((op, s.ty("type")?))
}

fn remote_reduction(s: &Site<'_, '_, '_>) -> Result<Reduction, Issue> {
    let (op, ty) = pair(s, REMOTE)?;
    Ok(Reduction { combine: combine(op, ty)?, element: ty.bytes(), of_system: of_system(s) })
}

fn global_reduction(s: &Site<'_, '_, '_>) -> Result<Reduction, Issue> {
    let (op, ty) = pair(s, GLOBAL)?;
    Ok(Reduction { combine: combine_bulk(op, ty)?, element: ty.bytes(), of_system: of_system(s) })
}

/// The size of a bulk copy in a lane, a multiple of 16.
fn size(cx: &Context<'_>, size: Src, lane: usize) -> Result<usize, Fault> {
    match cx.src(size)[lane] {
        n if n % 16 == 0 => Ok(n as usize),
        n => Err(fault(
            codes::ASYNCHRONOUS,
            lane,
            format!("a bulk copy has {n} bytes"),
            "use a size that is a multiple of 16",
        )),
    }
}

/// The CTAs of a multicast in a lane, by rank: the location in each CTA that corresponds to `to`.
pub(super) fn multicast(
    cx: &Context<'_>,
    mask: Option<Src>,
    to: Spot,
    mbar: Spot,
    lane: usize,
) -> Result<Vec<(Spot, Spot)>, Fault> {
    let Some(mask) = mask else { return Ok(vec![(to, mbar)]) };
    let mask = cx.src(mask)[lane];
    let members = &cx.at.members;
    if mask == 0 || mask >> members.len() != 0 {
        let message =
            format!("a multicast has the CTA mask {mask:#x}, but the cluster has {} CTAs", members.len());
        return Err(fault(
            codes::ASYNCHRONOUS,
            lane,
            message,
            "use only bits of CTAs in the cluster: bit i of the mask stands for the CTA of rank i",
        ));
    }
    let ranks = members.iter().enumerate().filter(|(rank, _)| mask >> rank & 1 != 0);
    Ok(ranks.map(|(_, &buffer)| (Spot { buffer, ..to }, Spot { buffer, ..mbar })).collect())
}

/// Faults unless the mbarrier is in the CTA that receives the bytes.
pub(super) fn same_cta(to: Spot, mbar: Spot, lane: usize) -> Result<(), Fault> {
    if to.buffer == mbar.buffer {
        return Ok(());
    }
    let help =
        "place the mbarrier in the shared memory of the destination's CTA: map both addresses with mapa";
    Err(fault(
        codes::ASYNCHRONOUS,
        lane,
        "the destination and the mbarrier are in the shared memory of different CTAs",
        help,
    ))
}

/// A copy from global memory into the shared memory of one CTA or several.
struct Load {
    dst: (Address, Space),
    src: Address,
    size: Src,
    mbar: (Address, Space),
    mask: Option<Src>,
}

fn load(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let space = s.space();
    let (dst, (src, _)) = (s.address(0, space)?, s.address(1, Space::Global)?);
    let (size, mbar) = (s.src(2, Ty::B32)?, s.address(3, space)?);
    let mask = match s.has("multicast::cluster") {
        true if space != Space::Cluster => {
            return issue(codes::UNKNOWN_MODIFIER, "a multicast to `.shared::cta`", "");
        }
        true => Some(s.src(4, Ty::parse("u16").unwrap_or(Ty::B32))?),
        false => None,
    };
    s.cache_hint(4 + usize::from(mask.is_some()))?;
    Ok(Box::new(Load { dst, src, size, mbar, mask }))
}

impl Operation for Load {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (dst, src, mbar) = (self.dst.0.lanes(cx), self.src.lanes(cx), self.mbar.0.lanes(cx));
        for lane in lanes(cx.active) {
            let len = size(cx, self.size, lane)?;
            let to = cx.spot(self.dst.1, dst[lane], (len, 16), true, lane)?;
            let from = cx.spot(Space::Global, src[lane], (len, 16), false, lane)?;
            let at = cx.mbarrier(self.mbar.1, mbar[lane], lane)?;
            same_cta(to, at, lane)?;
            for (to, at) in multicast(cx, self.mask, to, at, lane)? {
                let segments = vec![Segment { from: Some(from), to, len }];
                cx.issue(lane, Transfer::new(segments), Completion::Mbarrier(at))?;
            }
        }
        Ok(Flow::Next)
    }
}

/// Builds a copy from the CTA's shared memory into another CTA's.
fn send(s: &mut Site<'_, '_, '_>, reduction: Option<Reduction>) -> Result<Op, Issue> {
    let (dst, dst_space) = s.address(0, Space::Cluster)?;
    let (src, _) = s.address(1, Space::Shared)?;
    let (len, (mbar, mbar_space)) = (s.src(2, Ty::B32)?, s.address(3, Space::Cluster)?);
    let reduction = reduction.map(Arc::new);
    Ok(custom(move |cx| {
        let (dst, src, mbar) = (dst.lanes(cx), src.lanes(cx), mbar.lanes(cx));
        for lane in lanes(cx.active) {
            let len = size(cx, len, lane)?;
            let to = cx.spot(dst_space, dst[lane], (len, 16), true, lane)?;
            let from = cx.spot(Space::Shared, src[lane], (len, 16), false, lane)?;
            let at = cx.mbarrier(mbar_space, mbar[lane], lane)?;
            same_cta(to, at, lane)?;
            let t = Transfer::new(vec![Segment { from: Some(from), to, len }]);
            let t = Transfer { reduction: reduction.clone(), ..t };
            cx.issue(lane, t, Completion::Mbarrier(at))?;
        }
        Ok(Flow::Next)
    }))
}

/// Builds a copy from the CTA's shared memory into global memory.
fn store(s: &mut Site<'_, '_, '_>, reduction: Option<Reduction>) -> Result<Op, Issue> {
    let ((dst, _), (src, _)) = (s.address(0, Space::Global)?, s.address(1, Space::Shared)?);
    let len = s.src(2, Ty::B32)?;
    let hint = usize::from(s.has("L2::cache_hint"));
    let mask = match s.has("cp_mask") {
        true => Some(s.src(3 + hint, Ty::parse("u16").unwrap_or(Ty::B32))?),
        false => None,
    };
    if s.operands.len() != 3 + hint + usize::from(mask.is_some()) {
        return issue(codes::BAD_OPERANDS, "the operands do not fit the modifiers", "");
    }
    if hint > 0 {
        s.src(3, Ty::B64)?;
    }
    let reduction = reduction.map(Arc::new);
    Ok(custom(move |cx| {
        let (dst, src) = (dst.lanes(cx), src.lanes(cx));
        for lane in lanes(cx.active) {
            let len = size(cx, len, lane)?;
            let to = cx.spot(Space::Global, dst[lane], (len, 16), true, lane)?;
            let from = cx.spot(Space::Shared, src[lane], (len, 16), false, lane)?;
            let whole = Segment { from: Some(from), to, len };
            let segments = match mask {
                None => vec![whole],
                Some(m) => masked(whole, cx.src(m)[lane] as u32),
            };
            let t = Transfer { reduction: reduction.clone(), ..Transfer::new(segments) };
            cx.issue(lane, t, Completion::Group)?;
        }
        Ok(Flow::Next)
    }))
}

/// Builds a copy from the CTA's shared memory to every member of a team.
fn broadcast(s: &mut Site<'_, '_, '_>, reduction: Option<Reduction>) -> Result<Op, Issue> {
    if reduction.is_none() && s.has("b128") != s.has("scope") {
        return issue(
            codes::UNKNOWN_MODIFIER,
            "`.b128` cannot be combined with these semantics",
            "use `.b128` with `.relaxed`, and omit it in weak copies",
        );
    }
    if s.has("scope") != (s.get("sem") == Some("relaxed")) {
        return issue(
            codes::UNKNOWN_MODIFIER,
            "these semantics cannot be combined with this scope",
            "give .relaxed a scope, and .weak none",
        );
    }
    let ((dst, _), (src, _)) = (s.address(0, Space::Global)?, s.address(1, Space::Shared)?);
    let len = s.src(2, Ty::B32)?;
    let reduction = reduction.map(Arc::new);
    Ok(custom(move |cx| {
        let (dst, src) = (dst.lanes(cx), src.lanes(cx));
        for lane in lanes(cx.active) {
            let len = size(cx, len, lane)?;
            let (_, addr) = cx.locate(Space::Global, dst[lane], 16, lane)?;
            let from = cx.spot(Space::Shared, src[lane], (len, 16), false, lane)?;
            let found = cx.memory.multicast(cx.at.pe, addr, len as u64);
            let (team, at) = found.map_err(|e| access_fault(lane, e))?;
            let members = &cx.memory.teams[team].members;
            let to = |&pe: &usize| Segment { from: Some(from), to: cx.memory.heap(pe, at as u64), len };
            let segments = members.iter().map(to).collect();
            let t = Transfer { reduction: reduction.clone(), links: false, ..Transfer::new(segments) };
            cx.issue(lane, t, Completion::Group)?;
            let counter = cx.switch(team);
            *(if reduction.is_some() { &mut counter.red } else { &mut counter.st }) += len as u64;
        }
        Ok(Flow::Next)
    }))
}

/// The bytes whose bit `i % 16` of the mask is set.
fn masked(s: Segment, mask: u32) -> Vec<Segment> {
    let set = |i: usize| mask >> (i % 16) & 1 != 0;
    let byte = |i: usize| Segment {
        from: s.from.map(|f| Spot { at: f.at + i, ..f }),
        to: Spot { at: s.to.at + i, ..s.to },
        len: 1,
    };
    (0..s.len).filter(|&i| set(i)).map(byte).collect()
}

/// Builds a store or reduction of one element or vector.
fn one(s: &mut Site<'_, '_, '_>, reduction: Option<Reduction>) -> Result<Op, Issue> {
    let ty = s.ty("type")?;
    let (dst, dst_space) = s.address(0, Space::Cluster)?;
    let src = s.vector_src(1, s.vec_count(), ty, false)?;
    let (mbar, mbar_space) = s.address(2, Space::Cluster)?;
    let len = ty.bytes() * src.len();
    if len > 16 {
        return issue(
            codes::UNKNOWN_MODIFIER,
            format!("the vector has {len} bytes"),
            "st.async can store at most 16 bytes",
        );
    }
    let reduction = reduction.map(Arc::new);
    Ok(custom(move |cx| {
        let (dst, mbar) = (dst.lanes(cx), mbar.lanes(cx));
        for lane in lanes(cx.active) {
            let to = cx.spot(dst_space, dst[lane], (len, len), true, lane)?;
            let at = cx.mbarrier(mbar_space, mbar[lane], lane)?;
            same_cta(to, at, lane)?;
            let mut data = vec![0; len];
            for (src, piece) in src.iter().zip(data.chunks_exact_mut(ty.bytes())) {
                put_le(piece, cx.src(*src)[lane]);
            }
            let t = Transfer::new(vec![Segment { from: None, to, len }]);
            let t = Transfer { data: Some(data), reduction: reduction.clone(), ..t };
            cx.issue(lane, t, Completion::Mbarrier(at))?;
        }
        Ok(Flow::Next)
    }))
}
