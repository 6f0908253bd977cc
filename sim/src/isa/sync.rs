//! Synchronisation: barriers of the CTA, fences and waits.

use super::classes::SCOPE;
use super::lift::custom;
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::barrier::{Arrival, ReduceTo, Reduction, Role};
use crate::exec::{Context, Fault, Flow, Op, PredSrc, Src, fault};
use crate::model::BARRIERS;
use crate::order::{Fence, Scope};
use crate::types::Ty;

const SC: Class = ("scope", SCOPE);
const LOGIC: Class = ("op", &["and", "or"]);
const PROXY: Class = ("kind", &["alias", "async", "async.global"]);

pub(super) static FAMILY: Family = Family {
    title: "Barriers, fences, waiting",
    section: "9.7.13",
    rows: &[
        row("bar{.cta}.sync", "a{, b}", &[], sync),
        row("bar{.cta}.arrive", "a, b", &[], arrive),
        row("bar{.cta}.red.popc.u32", "d, a{, b}, c", &[], reduce),
        row("bar{.cta}.red.op.pred", "p, a{, b}, c", &[LOGIC], reduce),
        row("barrier{.cta}.sync{.aligned}", "a{, b}", &[], sync),
        row("barrier{.cta}.arrive{.aligned}", "a, b", &[], arrive),
        row("barrier{.cta}.red.popc{.aligned}.u32", "d, a{, b}, c", &[], reduce),
        row("barrier{.cta}.red.op{.aligned}.pred", "p, a{, b}, c", &[LOGIC], reduce),
        row("bar.warp.sync", "membermask", &[], |s| {
            let m = s.src(0, Ty::B32)?;
            Ok(custom(move |cx| {
                let flow = super::warp::converged(cx, m, |cx| {
                    cx.watch_warp_sync(cx.active);
                    Ok(Flow::Next)
                })?;
                // Lanes may meet at several of these instructions.
                Ok(if let Flow::Converge(needed) = flow { Flow::Meet(needed) } else { flow })
            }))
        }),
        row("fence{.sem}.scope", "", &[("sem", &["sc", "acq_rel", "acquire", "release"]), SC], fence),
        row("fence.proxy.kind", "", &[PROXY], proxy),
        row(
            "fence.proxy.async.space",
            "",
            &[("space", &["global", "shared::cta", "shared::cluster"])],
            proxy,
        ),
        row("fence.mbarrier_init.release.cluster", "", &[], |_| {
            Ok(custom(|cx| {
                cx.watch_fence(Fence::release(Scope::Cluster));
                Ok(Flow::Next)
            }))
        }),
        row(
            "fence.sem.restrict.cluster",
            "",
            &[
                ("sem", &["acquire", "release"]),
                ("restrict", &["sync_restrict::shared::cluster", "sync_restrict::shared::cta"]),
            ],
            fence,
        ),
        row(
            "fence.proxy.async::generic.sem.restrict.cluster",
            "",
            &[
                ("sem", &["acquire", "release"]),
                ("restrict", &["sync_restrict::shared::cluster", "sync_restrict::shared::cta"]),
            ],
            proxy,
        ),
        row("membar.level", "", &[("level", &["cta", "gl", "sys"])], fence),
        row("membar.proxy.kind", "", &[PROXY], proxy),
        row("nanosleep.u32", "t", &[], |s| {
            s.src(0, Ty::B32)?;
            Ok(custom(|_| Ok(Flow::Yield)))
        }),
        row("griddepcontrol.action", "", &[("action", &["launch_dependents", "wait"])], |s| {
            let waits = s.get("action") == Some("wait");
            Ok(custom(move |_| Ok(if waits { Flow::WaitDependencies } else { Flow::LaunchDependents })))
        }),
        row("setmaxnreg.action.sync.aligned.u32", "count", &[("action", &["inc", "dec"])], |s| {
            match s.immediate(0)? {
                n if n % 8 == 0 && (24..=256).contains(&n) => nothing(s),
                n => issue(
                    codes::BAD_OPERANDS,
                    format!("{n} registers"),
                    "the register count must be a multiple of 8 from 24 to 256",
                ),
            }
        }),
        row("pmevent{.mask}", "a", &[], |s| {
            s.immediate(0)?;
            nothing(s)
        }),
    ],
};

/// Builds a fence. Memory is sequentially consistent at the granularity of warp instructions; the
/// detector gets the order of the fence.
fn fence(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let scope = s.get("scope").or(s.get("level")).and_then(Scope::parse).unwrap_or(Scope::Sys);
    let sem = s.get("sem");
    let (acquire, release) = (sem != Some("release"), sem != Some("acquire"));
    // A `membar` is a `fence.sc`.
    let sequential = sem == Some("sc") || s.get("level").is_some();
    let fence = Fence { scope, acquire, release, sequential };
    Ok(custom(move |cx| {
        cx.publish(scope);
        cx.watch_fence(fence);
        Ok(Flow::Next)
    }))
}

fn proxy(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let alias = s.get("kind") == Some("alias");
    Ok(custom(move |cx| {
        if !alias {
            cx.watch_proxy();
        }
        Ok(Flow::Next)
    }))
}

/// Builds a hint or another instruction without an effect here.
fn nothing(_: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    Ok(custom(|_| Ok(Flow::Next)))
}

/// The barrier number and thread count, as source operands.
struct Named {
    id: Src,
    count: Option<Src>,
    aligned: bool,
}

impl Named {
    fn arrival(&self, cx: &Context<'_>, role: Role) -> Result<Flow, Fault> {
        let lane = cx.active.trailing_zeros() as usize;
        let id = cx.uniform(self.id, "the barrier number")?;
        if id >= BARRIERS as u64 {
            return Err(fault(
                codes::UNDEFINED,
                lane,
                format!("barrier {id} does not exist"),
                "use a barrier number from 0 to 15",
            ));
        }
        let count = match self.count {
            None => None,
            Some(c) => match cx.uniform(c, "the thread count of the barrier")? {
                0 if role == Role::Sync => None,
                n if n > 0 && n % 32 == 0 && n <= 1024 => Some(n as u32),
                n => {
                    let help = "use a thread count that is a multiple of 32, up to 1024";
                    return Err(fault(
                        codes::UNDEFINED,
                        lane,
                        format!("the barrier has a thread count of {n}"),
                        help,
                    ));
                }
            },
        };
        Ok(Flow::Barrier(Arrival { id: id as u8, count, aligned: self.aligned, role }))
    }
}

/// Parses the operand `first` (number) and, if there are `total` operands, one more (count).
fn named(
    s: &mut Site<'_, '_, '_>,
    opcode_aligned: bool,
    first: usize,
    has_count: bool,
) -> Result<Named, Issue> {
    let id = s.src(first, Ty::B32)?;
    let count = if has_count { Some(s.src(first + 1, Ty::B32)?) } else { None };
    Ok(Named { id, count, aligned: opcode_aligned || s.has("aligned") })
}

fn sync(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let named = named(s, s.opcode == "bar", 0, s.operands.len() == 2)?;
    Ok(custom(move |cx| named.arrival(cx, Role::Sync)))
}

fn arrive(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let named = named(s, s.opcode == "bar", 0, true)?;
    Ok(custom(move |cx| named.arrival(cx, Role::Arrive)))
}

fn reduce(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let n = s.operands.len();
    let named = named(s, s.opcode == "bar", 1, n == 4)?;
    let votes: PredSrc = s.pred_src(n - 1)?;
    let (op, to) = match s.get("op") {
        Some("and") => (Reduction::And, ReduceTo::Pred(s.pred_dst(0)?)),
        Some("or") => (Reduction::Or, ReduceTo::Pred(s.pred_dst(0)?)),
        _ => (Reduction::Popc, ReduceTo::Reg(s.dst(0, Ty::B32)?)),
    };
    if n < 3 {
        return issue(codes::BAD_OPERANDS, "the predicate operand is missing", "");
    }
    Ok(custom(move |cx| {
        let votes = cx.pred(votes) & cx.active;
        named.arrival(cx, Role::Reduce { op, votes, to })
    }))
}
