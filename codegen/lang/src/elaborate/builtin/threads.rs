//! Functions that identify the thread, and functions that synchronise threads.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::WRONG_ARGS;
use crate::elaborate::value::{Threads, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::{Dim, Group, Int, Scope, Sem, Sreg, Team, Thread};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "thread_idx",
        "thread_idx<x>()",
        "Index of the thread in its CTA, in dimension x, y or z.",
        special,
    ),
    builtin("block_idx", "block_idx<x>()", "Index of the CTA in the grid.", special),
    builtin("block_dim", "block_dim<x>()", "Number of threads per CTA.", special),
    builtin("grid_dim", "grid_dim<x>()", "Number of CTAs in the grid.", special),
    builtin("lane_idx", "lane_idx()", "Index of the thread in its warp, 0 to 31.", special),
    builtin("warp_idx", "warp_idx()", "Index of the warp in its CTA.", warp_idx),
    builtin(
        "threads",
        "threads<block>()",
        "The threads to share work: those of the grid, or with `<cluster>`, `<block>` or `<warp>` those of that group.",
        threads,
    ),
    builtin(
        "my_pe",
        "my_pe(team)",
        "Rank of this PE in the team. Without a team, it is the rank in the kernel's only team, or among \
         all PEs.",
        my_pe,
    ),
    builtin(
        "n_pes",
        "n_pes(team)",
        "Number of PEs in the team. Without a team, it refers to the same PEs as my_pe.",
        n_pes,
    ),
    builtin("cluster_rank", "cluster_rank()", "Rank of the CTA in its cluster, from 0.", special),
    builtin(
        "cluster_size",
        "cluster_size()",
        "Number of CTAs per cluster. It is 1 without `cluster(...)`.",
        cluster_size,
    ),
    builtin("sync_threads", "sync_threads()", "Waits for all threads of the CTA (bar.sync).", sync_threads),
    builtin(
        "sync_cluster",
        "sync_cluster()",
        "Waits for all threads of the cluster (barrier.cluster).",
        sync_cluster,
    ),
    builtin(
        "cluster_arrive",
        "cluster_arrive()",
        "Arrives at the barrier of the cluster without waiting: the first half of sync_cluster.",
        cluster_arrive,
    ),
    builtin(
        "cluster_wait",
        "cluster_wait()",
        "Waits until all threads of the cluster have arrived: the second half of sync_cluster.",
        cluster_wait,
    ),
    builtin(
        "launch_dependents",
        "launch_dependents()",
        "Lets the next launch in the stream begin before this one ends, when all CTAs have reached this \
         call (griddepcontrol).",
        launch_dependents,
    ),
    builtin(
        "wait_dependencies",
        "wait_dependencies()",
        "Waits until the launches before this one have ended, whose results can then be read. A kernel that calls it can begin before that (griddepcontrol).",
        wait_dependencies,
    ),
    builtin("sync_warp", "sync_warp()", "Waits for all lanes of the warp (bar.warp.sync).", sync_warp),
    builtin(
        "barrier",
        "barrier(sync, team, acq_rel, sys)",
        "Waits for the CTAs of the same index on every PE of the team. It counts epochs and is never reset. With a team alone, `barrier<block>(team)` is NVSHMEM's own barrier: a quiet and a sync.",
        barrier,
    ),
    builtin(
        "clock",
        "clock()",
        "The clock of the thread's multiprocessor, in cycles. On the simulator, it counts instructions of all warps.",
        clock,
    ),
    builtin(
        "global_time",
        "global_time()",
        "The timer of the GPU, in nanoseconds. It has steps of some tens of nanoseconds, and the timers of two GPUs differ. On the simulator, it counts instructions of all warps.",
        global_time,
    ),
    builtin(
        "fence",
        "fence<acq_rel, sys>()",
        "Orders earlier accesses before later ones. `fence<async>()` orders accesses to memory outside \
         of the CTA, and those of other threads that this thread has observed, before copies of tiles \
         that begin later.",
        fence,
    ),
];

fn special(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    let mut words = call.words()?;
    let dim = words.take(Dim::parse).unwrap_or(Dim::X);
    words.done(call.name, "x, y or z")?;
    match Sreg::parse(call.name) {
        Some(Sreg::ClusterRank) if e.b.kernel().cluster_size() == 1 => Ok(Val::Int(Int::ZERO)),
        Some(reg) => e.special(reg, dim).map(Val::Int),
        None => fail(WRONG_ARGS, call.span, format!("there is no register `{}`", call.name)),
    }
}

fn cluster_size(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    Ok(Val::Int(Int::from(i64::from(e.b.kernel().cluster_size()))))
}

fn warp_idx(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    Ok(Val::Int(e.threads(false)?.index.floor_div(&32.into())))
}

fn threads(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    let mut words = call.words()?;
    let group = words.take(|w| Group::parse(w).filter(|g| *g != Group::Thread));
    words.done(call.name, "cluster, block, warp, or nothing for the whole grid")?;
    Ok(Val::Threads(match group {
        None => e.threads(true)?,
        Some(Group::Block) => e.threads(false)?,
        Some(Group::Cluster) => {
            let own = e.threads(false)?;
            let rank = e.special(Sreg::ClusterRank, Dim::X)?;
            let ctas = Int::from(i64::from(e.b.kernel().cluster_size()));
            Threads { index: own.index + rank * own.count.clone(), count: own.count * ctas }
        }
        Some(_) => Threads { index: e.special(Sreg::LaneIdx, Dim::X)?, count: 32.into() },
    }))
}

fn my_pe(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=1)?;
    call.no_words()?;
    let team = call.team_or_only(e, 0)?;
    let v = e.b.emit(Team::MyPe { team })?;
    e.symbol(v).map(Val::Int)
}

fn n_pes(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=1)?;
    call.no_words()?;
    let team = call.team_or_only(e, 0)?;
    let v = e.b.emit(Team::NPes { team })?;
    e.symbol(v).map(Val::Int)
}

fn clock(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    let v = e.b.emit(Thread::Clock {})?;
    e.symbol(v).map(Val::Int)
}

fn global_time(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    let v = e.b.emit(Thread::GlobalTime {})?;
    e.symbol(v).map(Val::Int)
}

fn group(e: &mut Elab<'_>, call: &Call<'_>, group: Group) -> Result<Val> {
    call.arity(0..=0)?;
    call.no_words()?;
    e.b.emit(Thread::GroupBarrier { group }).map(|_| Val::Unit)
}

fn sync_threads(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    group(e, call, Group::Block)
}

fn sync_cluster(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    group(e, call, Group::Cluster)
}

fn cluster_arrive(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    effect(e, call, Thread::ClusterArrive {})
}

fn cluster_wait(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    effect(e, call, Thread::ClusterWait {})
}

fn launch_dependents(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    effect(e, call, Thread::LaunchDependents {})
}

fn wait_dependencies(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    effect(e, call, Thread::WaitDependencies {})
}

fn effect(e: &mut Elab<'_>, call: &Call<'_>, op: Thread) -> Result<Val> {
    call.arity(0..=0)?;
    e.b.emit(op).map(|_| Val::Unit)
}

fn sync_warp(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    group(e, call, Group::Warp)
}

fn barrier(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    if matches!(call.val(0).0, Val::Team(_)) {
        return super::collective::sync(e, call);
    }
    call.arity(2..=4)?;
    call.no_words()?;
    let (sync, at) = call.val(0);
    let Val::Barrier(sync) = sync else {
        return fail(
            crate::codes::meaning::WRONG_KIND,
            at,
            format!("`barrier` needs a barrier, found {}", e.describe(&sync)),
        );
    };
    let team = call.team(e, 1)?;
    let (mut sem, mut scope) = (Sem::AcqRel, Scope::Sys);
    for i in 2..call.args.len() {
        match call.val(i) {
            (Val::Str(w), _) if Sem::parse(&w).is_some() => sem = Sem::parse(&w).unwrap_or(sem),
            (Val::Str(w), _) if Scope::parse(&w).is_some() => scope = Scope::parse(&w).unwrap_or(scope),
            (other, at) => {
                return fail(
                    WRONG_ARGS,
                    at,
                    format!("expected a memory order or a scope, found {}", e.describe(&other)),
                );
            }
        }
    }
    e.b.emit(Team::Barrier { sync, team, sem, scope }).map(|_| Val::Unit)
}

fn fence(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(0..=0)?;
    let mut words = call.words()?;
    if words.take(|w| (w == "async").then_some(())).is_some() {
        words.done(call.name, "async alone, or a memory order and a scope")?;
        return e.b.emit(Thread::AsyncFence {}).map(|_| Val::Unit);
    }
    let sem = words.take(Sem::parse).unwrap_or(Sem::AcqRel);
    let scope = words.take(Scope::parse).unwrap_or(Scope::Sys);
    words.done(call.name, "a memory order and a scope")?;
    e.b.emit(Thread::Fence { sem, scope }).map(|_| Val::Unit)
}
