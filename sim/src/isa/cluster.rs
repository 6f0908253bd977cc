//! Thread-block clusters: their barrier, and the addresses of other CTAs' shared memory.

use super::lift::custom;
use super::site::{Issue, Site};
use super::{Class, Family, row};
use crate::codes;
use crate::exec::access::{CLUSTER_SHIFT, Space};
use crate::exec::cluster::Step;
use crate::exec::{Flow, Op, fault};
use crate::model::lanes;
use crate::num::mask;
use crate::order::Scope;
use crate::types::Ty;

const SPACE: Class = ("space", &["shared::cluster"]);
const SIZE: Class = ("type", &["u32", "u64"]);

pub(super) static FAMILY: Family = Family {
    title: "Clusters",
    section: "9.7.13.4, 9.7.9.23",
    rows: &[
        row("barrier.cluster.arrive{.sem}{.aligned}", "", &[("sem", &["release", "relaxed"])], |s| {
            barrier(s, false)
        }),
        row("barrier.cluster.wait{.acquire}{.aligned}", "", &[], |s| barrier(s, true)),
        row("mapa{.space}.type", "d, a, b", &[SPACE, SIZE], mapa),
        row("getctarank{.space}.type", "d, a", &[SPACE, SIZE], ctarank),
    ],
};

fn barrier(s: &mut Site<'_, '_, '_>, waits: bool) -> Result<Op, Issue> {
    let releases = s.get("sem") != Some("relaxed");
    let step = Step { waits, releases, aligned: s.has("aligned") };
    Ok(custom(move |cx| {
        if releases && !waits {
            cx.publish(Scope::Cluster);
        }
        Ok(Flow::ClusterBarrier(step))
    }))
}

/// The bits of an address below the rank.
const OFFSET: u64 = mask(CLUSTER_SHIFT);

fn mapa(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ty = s.ty("type")?;
    let (d, a, b) = (s.dst(0, ty)?, s.src_named(1, ty)?, s.src(2, Ty::B32)?);
    let window = if s.has("space") || ty.bits == 32 { 0 } else { Space::Shared.window() };
    Ok(custom(move |cx| {
        let (a, b) = (*cx.src(a), *cx.src(b));
        for lane in lanes(cx.active) {
            let count = cx.at.members.len() as u64;
            if b[lane] >= count {
                let message = format!("mapa has rank {}, but the cluster has {count} CTAs", b[lane]);
                return Err(fault(
                    codes::UNDEFINED,
                    lane,
                    message,
                    "use a rank from 0 to %cluster_nctarank - 1",
                ));
            }
            cx.reg(d)[lane] = window | (b[lane] + 1) << CLUSTER_SHIFT | a[lane] & OFFSET;
        }
        Ok(Flow::Next)
    }))
}

fn ctarank(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ty = s.ty("type")?;
    let (d, a) = (s.dst(0, Ty::B32)?, s.src_named(1, ty)?);
    Ok(custom(move |cx| {
        let a = *cx.src(a);
        for lane in lanes(cx.active) {
            let rank = match (a[lane] & mask(32)) >> CLUSTER_SHIFT {
                0 => cx.at.rank.into(),
                n => n - 1,
            };
            cx.reg(d)[lane] = rank;
        }
        Ok(Flow::Next)
    }))
}
