//! Special registers (manual section 10): read-only values an instruction can name as a source.

use super::lift::custom;
use crate::exec::{Context, Flow, Op, Reg};
use crate::model::lanes;

/// A special register and its value in one lane.
pub(crate) struct Special {
    pub name: &'static str,
    pub meaning: &'static str,
    pub bits: u32,
    value: fn(&Context<'_>, usize) -> u64,
}

const fn special(
    name: &'static str,
    meaning: &'static str,
    value: fn(&Context<'_>, usize) -> u64,
) -> Special {
    Special { name, meaning, bits: 32, value }
}

const fn special64(
    name: &'static str,
    meaning: &'static str,
    value: fn(&Context<'_>, usize) -> u64,
) -> Special {
    Special { name, meaning, bits: 64, value }
}

/// The clock of the simulator advances by one tick for each warp instruction of the whole machine;
/// `%globaltimer` counts the same ticks as nanoseconds.
pub(crate) static SPECIAL: &[Special] = &[
    special("%tid.x", "thread in the CTA", |c, l| c.at.tid(c.thread(l))[0].into()),
    special("%tid.y", "thread in the CTA", |c, l| c.at.tid(c.thread(l))[1].into()),
    special("%tid.z", "thread in the CTA", |c, l| c.at.tid(c.thread(l))[2].into()),
    special("%ntid.x", "threads of the CTA", |c, _| c.at.ntid[0].into()),
    special("%ntid.y", "threads of the CTA", |c, _| c.at.ntid[1].into()),
    special("%ntid.z", "threads of the CTA", |c, _| c.at.ntid[2].into()),
    special("%ctaid.x", "CTA in the grid", |c, _| c.at.ctaid[0].into()),
    special("%ctaid.y", "CTA in the grid", |c, _| c.at.ctaid[1].into()),
    special("%ctaid.z", "CTA in the grid", |c, _| c.at.ctaid[2].into()),
    special("%nctaid.x", "CTAs of the grid", |c, _| c.at.nctaid[0].into()),
    special("%nctaid.y", "CTAs of the grid", |c, _| c.at.nctaid[1].into()),
    special("%nctaid.z", "CTAs of the grid", |c, _| c.at.nctaid[2].into()),
    special("%laneid", "number of the lane in the warp", |_, l| l as u64),
    special("%warpid", "number of the warp in the CTA", |c, _| c.warp.into()),
    special("%nwarpid", "warps an SM can hold", |_, _| 64),
    special("%smid", "number of the SM: the CTA's index among those resident on the PE", |c, _| {
        c.at.slot.into()
    }),
    special("%nsmid", "SMs of the PE", |c, _| c.at.slots.into()),
    special64("%gridid", "grid: always 1; also read as 32 bits", |_, _| 1),
    special("%lanemask_eq", "bit of this lane", |_, l| 1 << l),
    special("%lanemask_lt", "bits of the lanes below", |_, l| (1 << l) - 1),
    special("%lanemask_le", "bits of the lanes up to this one", |_, l| (2 << l) - 1),
    special("%lanemask_gt", "bits of the lanes above", |_, l| 0xffff_ffff & !((2 << l) - 1)),
    special("%lanemask_ge", "bits of this lane and those above", |_, l| 0xffff_ffff & !((1 << l) - 1)),
    special("%clock", "low 32 bits of the clock", |c, _| c.clock & 0xffff_ffff),
    special("%clock_hi", "high 32 bits of the clock", |c, _| c.clock >> 32),
    special64("%clock64", "clock: warp instructions of the machine so far", |c, _| c.clock),
    special64("%globaltimer", "the same clock, as nanoseconds", |c, _| c.clock),
    special("%globaltimer_lo", "low 32 bits of it", |c, _| c.clock & 0xffff_ffff),
    special("%globaltimer_hi", "high 32 bits of it", |c, _| c.clock >> 32),
    special("%dynamic_smem_size", "bytes of dynamic shared memory", |c, _| c.at.dynamic_shared.into()),
    special("%total_smem_size", "bytes of shared memory", |c, _| {
        (u64::from(c.at.static_shared) + u64::from(c.at.dynamic_shared)).next_multiple_of(128)
    }),
    special("%aggr_smem_size", "bytes of shared memory", |c, _| {
        (u64::from(c.at.static_shared) + u64::from(c.at.dynamic_shared)).next_multiple_of(128)
    }),
    special("%clusterid.x", "cluster in the grid", |c, _| (c.at.ctaid[0] / c.at.cluster[0]).into()),
    special("%clusterid.y", "cluster in the grid", |c, _| (c.at.ctaid[1] / c.at.cluster[1]).into()),
    special("%clusterid.z", "cluster in the grid", |c, _| (c.at.ctaid[2] / c.at.cluster[2]).into()),
    special("%nclusterid.x", "clusters of the grid", |c, _| (c.at.nctaid[0] / c.at.cluster[0]).into()),
    special("%nclusterid.y", "clusters of the grid", |c, _| (c.at.nctaid[1] / c.at.cluster[1]).into()),
    special("%nclusterid.z", "clusters of the grid", |c, _| (c.at.nctaid[2] / c.at.cluster[2]).into()),
    special("%cluster_ctaid.x", "CTA in the cluster", |c, _| (c.at.ctaid[0] % c.at.cluster[0]).into()),
    special("%cluster_ctaid.y", "CTA in the cluster", |c, _| (c.at.ctaid[1] % c.at.cluster[1]).into()),
    special("%cluster_ctaid.z", "CTA in the cluster", |c, _| (c.at.ctaid[2] % c.at.cluster[2]).into()),
    special("%cluster_nctaid.x", "CTAs of the cluster", |c, _| c.at.cluster[0].into()),
    special("%cluster_nctaid.y", "CTAs of the cluster", |c, _| c.at.cluster[1].into()),
    special("%cluster_nctaid.z", "CTAs of the cluster", |c, _| c.at.cluster[2].into()),
    special("%cluster_ctarank", "number of the CTA in the cluster", |c, _| c.at.rank.into()),
    special("%cluster_nctarank", "CTAs of the cluster in all", |c, _| c.at.members.len() as u64),
    Special {
        name: "%is_explicit_cluster",
        meaning: "whether the cluster has several CTAs: a predicate, for mov.pred",
        bits: 1,
        value: |c, _| (c.at.members.len() > 1).into(),
    },
    special(ZEROS, "0", |_, _| 0),
    special("WARP_SZ", "threads of a warp: 32", |_, _| 32),
];

pub(crate) fn special_register(name: &str) -> Option<&'static Special> {
    if !name.starts_with('%') && name != "WARP_SZ" {
        return None;
    }
    let numbered = |prefix: &str, count: u32| {
        name.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < count)
    };
    if numbered("%envreg", 32) || numbered("%pm", 8) {
        return SPECIAL.iter().find(|s| s.name == ZEROS);
    }
    SPECIAL.iter().find(|s| s.name == name)
}

/// Registers for the environment and performance monitors, which nothing sets here.
const ZEROS: &str = "%envreg0..31, %pm0..7";

impl Special {
    /// Copies the value, truncated to `mask`, into a register.
    pub(crate) fn operation(&'static self, d: Reg, mask: u64) -> Op {
        custom(move |cx| {
            for lane in lanes(cx.active) {
                let v = (self.value)(cx, lane) & mask;
                cx.reg(d)[lane] = v;
            }
            Ok(Flow::Next)
        })
    }
}
