//! The ops of the tensor level on other PEs: ranks, barriers of teams, and the memory of other PEs.

use super::Spread::{Operands, Threads};
use super::tensor_level::ATOMICS;
use super::{Family, here, there};
use crate::kernel::{TeamRef, Value};
use crate::names::{AmoOp, CmpOp, Group, MoveKind, RedOp, Scalar, Scope, Sem, SignalKind, WaitFor};

/// The name of a function with a non-blocking variant and variants for groups: `put_nbi<block>`.
fn of_group(name: &str, nbi: bool, group: Group) -> String {
    let words = if group == Group::Thread { String::new() } else { format!("<{group}>") };
    format!("{name}{}{words}", if nbi { "_nbi" } else { "" })
}

/// The name of a wait, such as `wait_until` or `test_any`.
fn wait_name(test: bool, which: WaitFor) -> String {
    let verb = if test { "test" } else { "wait_until" };
    if which == WaitFor::One { verb.into() } else { format!("{verb}_{which}") }
}

/// The name of an NVSHMEM barrier, such as `sync_all<block>`.
fn sync_name(barrier: bool, team: TeamRef, group: Group) -> String {
    let verb = if barrier { "barrier" } else { "sync" };
    of_group(&if team == TeamRef::WORLD { format!("{verb}_all") } else { verb.into() }, false, group)
}

family! {
    /// Ranks in a team, and barriers of a team.
    Team {
        /// This PE's rank in a team. Result: `i32`.
        pure MyPe = "my_pe" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "my_pe", spread Operands, result |t| t.scalar(Scalar::I32);
        /// The number of PEs of a team. Result: `i32`.
        pure NPes = "n_pes" {
            /// The team.
            team: TeamRef,
        }
        teams [team], name "n_pes", spread Operands, result |t| t.scalar(Scalar::I32);
        /// Waits for the CTAs of the same index on every PE of the team. The barrier counts epochs
        /// and is never reset, so launches can follow each other. `release` arrives, `acquire`
        /// waits, and `acq_rel` arrives and then waits.
        effect Barrier = "team_barrier" {
            /// The counters of the barrier.
            sync: Value,
            /// The team.
            team: TeamRef,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [], writes [], order Some((*sem, ATOMICS)), group Some(Group::Block),
        teams [team], name "barrier", spread Operands, result |t| t.team_barrier(*sync);
    }
}

family! {
    /// NVSHMEM's operations on other PEs' memory. Ranks refer to `team`.
    Remote {
        /// Copies a local tensor to another PE's part of a symmetric tensor. After it returns, the
        /// source can be reused, unless it is `nbi` (non-blocking). The data has arrived after a
        /// `quiet` or barrier.
        effect Put = "put" {
            /// The symmetric tensor that is written on the other PE.
            dst: Value,
            /// The tensor of this PE.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the source is read. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst)], order None, group Some(*group),
        teams [team], name of_group("put", *nbi, *group), spread Threads, result |t| t.remote().put(*dst, *src, *pe);
        /// Copies another PE's part of a symmetric tensor to a local one. The data has arrived when
        /// it returns, unless it is `nbi`.
        effect Get = "get" {
            /// The tensor of this PE.
            dst: Value,
            /// The symmetric tensor that is read on the other PE.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the data has arrived. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [there(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group("get", *nbi, *group), spread Threads, result |t| t.remote().get(*dst, *src, *pe);
        /// Does a `put`, and updates a signal on that PE after the data has arrived.
        effect PutSignal = "put_signal" {
            /// The symmetric tensor that is written on the other PE.
            dst: Value,
            /// The tensor of this PE.
            src: Value,
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
            /// Whether the call may return before the source is read. A `quiet` waits for it.
            nbi: bool,
            /// The threads that call it together with the same arguments.
            group: Group,
        }
        reads [here(src)], writes [there(dst), there(signal)], order None, group Some(*group),
        teams [team], name of_group("put_signal", *nbi, *group), spread Threads, result |t| t.remote().put_signal([*dst, *src, *signal], *value, *pe);
        /// Writes one element on another PE.
        effect PutValue = "p" {
            /// The symmetric tensor, which has one element.
            dst: Value,
            /// The value, which has the element type.
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [], writes [there(dst)], order None, group None,
        teams [team], name "p", spread Threads, result |t| t.remote().put_value(*dst, *value, *pe);
        /// Reads one element of another PE. Result: the element.
        effect GetValue = "g" {
            /// The symmetric tensor, which has one element.
            src: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(src)], writes [], order None, group None,
        teams [team], name "g", spread Threads, result |t| t.remote().get_value(*src, *pe);
        /// Updates a signal on another PE.
        effect SignalOp = "signal_op" {
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// How the signal is updated.
            op: SignalKind,
            /// The operand of the update (`u64`).
            value: Value,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(signal)], writes [there(signal)], order None, group None,
        teams [team], name "signal_op", spread Threads, result |t| t.remote().signal_op(*signal, *value, *pe);
        /// Waits until this PE's signal compares true with a value. Result: the signal's value (`u64`).
        effect SignalWait = "signal_wait_until" {
            /// The signal, a symmetric `u64`.
            signal: Value,
            /// The comparison, with the signal on the left.
            cmp: CmpOp,
            /// The value that the signal is compared with (`u64`).
            value: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_wait_until", spread Threads, result |t| t.remote().signal_wait(*signal, *value);
        /// This PE's signal. Result: `u64`.
        effect SignalFetch = "signal_fetch" {
            /// The signal, a symmetric `u64`.
            signal: Value,
        }
        reads [here(signal)], writes [], order None, group None,
        teams [], name "signal_fetch", spread Threads, result |t| t.remote().signal_fetch(*signal);
        /// Waits until variables of this PE compare true with values, or tests whether they do. The
        /// result of `one` and `all` is nothing, or `bool` for a test. That of `any` is the index
        /// of a variable that compares true (`i64`, -1 for none). That of `some` is the number of
        /// such variables (`i64`).
        effect Wait = "wait" {
            /// The symmetric tensor, which has one element for `one`.
            vars: Value,
            /// The comparison, with the variable on the left.
            cmp: CmpOp,
            /// The value that is compared, or a tensor with one value for each variable.
            value: Value,
            /// The variables that must compare true.
            which: WaitFor,
            /// Whether it tests once and does not wait.
            test: bool,
            /// An optional tensor of `i32`. A variable whose element here is not 0 is left out.
            status: Option<Value>,
            /// A tensor of `u64` for `some` that gets the indices of the variables that compare
            /// true.
            indices: Option<Value>,
        }
        reads [here(vars), status.as_ref().and_then(here)], writes [indices.as_ref().and_then(here)], order None, group None,
        teams [], name wait_name(*test, *which), spread Threads, result |t| t.remote().wait(*vars, *value, (*which, *test), *status, *indices);
        /// An atomic operation on one element of another PE. Result: the old value, for operations
        /// that fetch.
        effect Amo = "amo" {
            /// The symmetric tensor, which has one element.
            target: Value,
            /// The operation.
            op: AmoOp,
            /// The operands: the compared value and the stored value for `compare_swap`, none for
            /// fetch and inc, and one otherwise.
            operands: Vec<Value>,
            /// The rank in the team (`i32`).
            pe: Value,
            /// The team to which ranks refer.
            team: TeamRef,
        }
        reads [there(target)], writes [there(target)], order None, group None,
        teams [team], name format!("atomic_{op}"), spread Threads, result |t| t.remote().amo(*target, *op, operands, *pe);
        /// Orders this PE's puts, signals and atomics to each PE before later ones to the same PE.
        effect RmaFence = "rma_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "rma_fence", spread Threads, result |t| t.unit();
        /// Waits until all puts, gets, signals and atomics of this PE are complete, also on other PEs.
        effect Quiet = "quiet" {
        }
        reads [], writes [], order None, group None,
        teams [], name "quiet", spread Threads, result |t| t.unit();
        /// Waits for the same call on all PEs of the team. A barrier also does a quiet first.
        effect TeamSync = "team_sync" {
            /// The team.
            team: TeamRef,
            /// Whether it also completes remote memory operations.
            barrier: bool,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [team], name sync_name(*barrier, *team, *group), spread Threads, result |t| t.unit();
        /// Reduces a tensor over the PEs of a team. All PEs get the whole result, or with `scatter`
        /// each gets its part.
        effect TeamReduce = "team_reduce" {
            /// The symmetric tensor that gets the result.
            dst: Value,
            /// The symmetric tensor. For `scatter` it has a part for each PE, in rank order.
            src: Value,
            /// The reduction operation.
            op: RedOp,
            /// Whether each PE gets only its part.
            scatter: bool,
            /// The team.
            team: TeamRef,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(if *scatter { "reducescatter" } else { "reduce" }, false, *group), spread Threads, result |t| t.remote().team_reduce(*dst, *src, *op, *scatter);
        /// Exchanges tensors among the PEs of a team.
        effect TeamMove = "team_move" {
            /// The exchange.
            kind: MoveKind,
            /// The symmetric tensor that gets the result.
            dst: Value,
            /// The symmetric tensor.
            src: Value,
            /// The rank of the PE whose tensor is broadcast (`i32`), for `broadcast`.
            root: Option<Value>,
            /// The team.
            team: TeamRef,
            /// The threads of each PE that call it together.
            group: Group,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(*group),
        teams [team], name of_group(kind.name(), false, *group), spread Threads, result |t| t.remote().team_move(*dst, *src, *root);
        /// The rank that a PE of one team has in another, or -1 if it is not in it. Result: `i32`.
        pure TranslatePe = "translate_pe" {
            /// The rank in `from` (`i32`).
            pe: Value,
            /// The team in which the PE has that rank.
            from: TeamRef,
            /// The other team.
            to: TeamRef,
        }
        teams [from, to], name "translate_pe", spread Operands, result |t| t.remote().translate_pe(*pe);
    }
}

impl Remote {
    /// Whether threads of a group call it together with the same arguments.
    pub fn is_collective(&self) -> bool {
        self.group().is_some()
    }

    /// Whether earlier operations are complete, or their signal has arrived, when it returns.
    pub fn completes(&self) -> bool {
        matches!(
            self,
            Remote::Quiet {}
                | Remote::TeamSync { barrier: true, .. }
                | Remote::SignalWait { .. }
                | Remote::Wait { .. }
        )
    }
}
