//! Exchange between the lanes of a warp.

use super::lift::custom;
use super::site::{Issue, Site, issue};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::{Context, Fault, Flow, Op, Pred, Src, fault};
use crate::isa::reduce::combine;
use crate::model::lanes;
use crate::num::F32;
use crate::num::float::Style;
use crate::types::Ty;

const B3264: Class = ("type", &["b32", "b64"]);

pub(super) static FAMILY: Family = Family {
    title: "Warp exchange",
    section: "9.7.9.6, 9.7.13",
    rows: &[
        row(
            "shfl.sync.mode.b32",
            "d|p, a, b, c, membermask",
            &[("mode", &["up", "down", "bfly", "idx"])],
            shfl,
        ),
        row("vote.sync.mode.pred", "d, a, membermask", &[("mode", &["all", "any", "uni"])], |s| {
            let (d, a, m) = (s.pred_dst(0)?, s.pred_src(1)?, s.src(2, Ty::B32)?);
            let mode = s.text("mode");
            synced(m, move |cx| {
                let (votes, all) = (cx.pred(a) & cx.active, cx.active);
                let v = match mode {
                    "all" => votes == all,
                    "any" => votes != 0,
                    _ => votes == all || votes == 0,
                };
                cx.set_pred(d, if v { u32::MAX } else { 0 });
                Ok(Flow::Next)
            })
        }),
        row("vote.sync.ballot.b32", "d, a, membermask", &[], |s| {
            let (d, a, m) = (s.dst(0, Ty::B32)?, s.pred_src(1)?, s.src(2, Ty::B32)?);
            synced(m, move |cx| {
                let votes = cx.pred(a) & cx.active;
                cx.splat(d, votes.into());
                Ok(Flow::Next)
            })
        }),
        row("match.any.sync.type", "d, a, membermask", &[B3264], |s| {
            let t = s.ty("type")?;
            let (d, a, m) = (s.dst(0, Ty::B32)?, s.src(1, t)?, s.src(2, Ty::B32)?);
            synced(m, move |cx| {
                let a = *cx.src(a);
                for l in lanes(cx.active) {
                    let same = lanes(cx.active).filter(|&k| a[k] == a[l]).fold(0, |m, k| m | 1 << k);
                    cx.reg(d)[l] = same;
                }
                Ok(Flow::Next)
            })
        }),
        row("match.all.sync.type", "d|p, a, membermask", &[B3264], |s| {
            let t = s.ty("type")?;
            let ((d, p), a, m) = (s.dst_pred(0, 32)?, s.src(1, t)?, s.src(2, Ty::B32)?);
            synced(m, move |cx| {
                let a = *cx.src(a);
                let first = a[cx.active.trailing_zeros() as usize];
                let all = lanes(cx.active).all(|l| a[l] == first);
                let value = if all { cx.active } else { 0 };
                cx.splat(d, value.into());
                cx.set_pred(p, if all { u32::MAX } else { 0 });
                Ok(Flow::Next)
            })
        }),
        row("activemask.b32", "d", &[], |s| {
            let d = s.dst(0, Ty::B32)?;
            Ok(custom(move |cx| {
                let active = cx.active.into();
                cx.splat(d, active);
                Ok(Flow::Next)
            }))
        }),
        row(
            "redux.sync.op.type",
            "d, a, membermask",
            &[("op", &["add", "min", "max"]), ("type", &["u32", "s32"])],
            redux,
        ),
        row("redux.sync.op.b32", "d, a, membermask", &[("op", &["and", "or", "xor"])], redux),
        row("redux.sync.op{.abs}{.NaN}.f32", "d, a, membermask", &[("op", &["min", "max"])], |s| {
            let (d, a, m) = (s.dst(0, Ty::B32)?, s.src(1, Ty::F32)?, s.src(2, Ty::B32)?);
            let (largest, abs, nan) = (s.get("op") == Some("max"), s.has("abs"), s.has("NaN"));
            synced(m, move |cx| {
                let a = *cx.src(a);
                let value = |l: usize| if abs { a[l] & !F32.sign() } else { a[l] };
                let pick = |x, l: usize| Style::new(F32).extremum(x, value(l), largest, nan);
                let first = value(cx.active.trailing_zeros() as usize);
                let r = lanes(cx.active).fold(first, pick);
                cx.splat(d, r);
                Ok(Flow::Next)
            })
        }),
        row("elect.sync", "d|p, membermask", &[], |s| {
            let ((d, p), m) = (s.dst_pred(0, 32)?, s.src(1, Ty::B32)?);
            if p == Pred::SINK {
                return issue(
                    codes::BAD_OPERANDS,
                    "elect.sync needs a predicate destination",
                    "write `d|p` or `_|p`",
                );
            }
            synced(m, move |cx| {
                let leader = cx.active.trailing_zeros();
                cx.splat(d, leader.into());
                cx.set_pred(p, 1 << leader);
                Ok(Flow::Next)
            })
        }),
    ],
};

/// Runs `f` for lanes with equal member masks, if all members that have not exited have arrived;
/// the other lanes wait.
pub(super) fn converged(
    cx: &mut Context<'_>,
    mask: Src,
    f: impl Fn(&mut Context<'_>) -> Result<Flow, Fault>,
) -> Result<Flow, Fault> {
    let (all, masks) = (cx.active, *cx.src(mask));
    let (mut left, mut waiting, mut needed) = (all, 0, 0);
    while left != 0 {
        let members = masks[left.trailing_zeros() as usize];
        let party = lanes(left).filter(|&l| masks[l] == members).fold(0, |m, l| m | 1 << l);
        left &= !party;
        let members = members as u32;
        let outsiders = party & !members;
        if outsiders != 0 {
            let lane = outsiders.trailing_zeros() as usize;
            let message = format!(
                "lane {lane} is not in the member mask {members:#010x} of the instruction it executes"
            );
            return Err(fault(
                codes::UNDEFINED,
                lane,
                message,
                "include every executing thread in the member mask of a .sync instruction",
            ));
        }
        if members & cx.live & !party == 0 {
            cx.active = party;
            f(cx)?;
        } else {
            waiting |= party;
            needed |= members & cx.live;
        }
    }
    cx.active = all;
    Ok(match waiting {
        0 => Flow::Next,
        w if w == all => Flow::Converge(needed),
        _ => Flow::Part { waiting, needed },
    })
}

/// An operation that runs when its members have converged.
fn synced(
    mask: Src,
    f: impl Fn(&mut Context<'_>) -> Result<Flow, Fault> + Send + Sync + 'static,
) -> Result<Op, Issue> {
    Ok(custom(move |cx| converged(cx, mask, &f)))
}

fn shfl(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (d, p) = s.dst_pred(0, 32)?;
    let (a, b, c, m) = (s.src(1, Ty::B32)?, s.src(2, Ty::B32)?, s.src(3, Ty::B32)?, s.src(4, Ty::B32)?);
    let mode = match s.text("mode") {
        "up" => 0,
        "down" => 1,
        "bfly" => 2,
        "idx" => 3,
        _ => return issue(codes::UNKNOWN_MODIFIER, "unknown shuffle mode", ""),
    };
    synced(m, move |cx| {
        let (a, b, c) = (*cx.src(a), *cx.src(b), *cx.src(c));
        let mut in_range = 0;
        for l in lanes(cx.active) {
            let lane = l as i64;
            let (bval, clamp, segment) = ((b[l] & 31) as i64, (c[l] & 31) as i64, (c[l] >> 8 & 31) as i64);
            let max = lane & segment | clamp & !segment;
            let min = lane & segment;
            let (j, ok) = match mode {
                0 => (lane - bval, lane - bval >= max),
                1 => (lane + bval, lane + bval <= max),
                2 => (lane ^ bval, lane ^ bval <= max),
                _ => {
                    let j = min | bval & !segment;
                    (j, j <= max)
                }
            };
            let source = if ok { (j & 31) as usize } else { l };
            if cx.active >> source & 1 == 0 {
                let message = format!("shfl.sync reads lane {source}, which does not execute it");
                return Err(fault(
                    codes::UNDEFINED,
                    l,
                    message,
                    "include the source lane in the member mask",
                ));
            }
            cx.reg(d)[l] = a[source];
            in_range |= u32::from(ok) << l;
        }
        cx.set_pred(p, in_range);
        Ok(Flow::Next)
    })
}

fn redux(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let t = if s.has("type") { s.ty("type")? } else { Ty::B32 };
    let (d, a, m) = (s.dst(0, Ty::B32)?, s.src(1, Ty::B32)?, s.src(2, Ty::B32)?);
    let f = combine(s.text("op"), t)?;
    synced(m, move |cx| {
        let a = *cx.src(a);
        let r = lanes(cx.active).map(|l| a[l]).reduce(&f).unwrap_or(0);
        cx.splat(d, r);
        Ok(Flow::Next)
    })
}
