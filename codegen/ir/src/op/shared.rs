//! The ops of both levels.

use super::Spread::{Operands, Rule, Same, Threads};
use crate::kernel::{Block, Induction, LocalId, Value};
use crate::names::{BinOp, CmpOp, Dim, Group, RedOp, Scalar, Scope, Sem, ShuffleMode, Sreg, UnOp};
use std::sync::Arc;

/// A literal of one type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Constant {
    /// A truth value, `true` or `false`.
    Bool(bool),
    /// An integer of any integer type.
    Int(i64),
    /// A float of any floating-point type, to which it is rounded once.
    Float(f64),
}

/// The memory orders that a fence can have.
const FENCES: &[Sem] = &[Sem::Acquire, Sem::Release, Sem::AcqRel, Sem::SeqCst];

family! {
    /// Arithmetic on scalars and vectors.
    Arith {
        /// A literal of the result's type.
        pure Const = "const" {
            /// The value of the literal.
            value: Constant,
        }
        teams [], name "a literal", spread Operands, result |t| t.constant(*value);
        /// An elementwise operation with one operand. Result: the operand's type.
        pure Unary = "unary" {
            /// The operation.
            op: UnOp,
            /// The scalar or vector that the operation is applied to, lane by lane.
            a: Value,
        }
        teams [], name op.name(), spread Operands, result |t| t.unary(*op, *a);
        /// An elementwise operation with two operands of one type. Result: that type.
        pure Binary = "binary" {
            /// The operation.
            op: BinOp,
            /// The left operand.
            a: Value,
            /// The right operand.
            b: Value,
        }
        teams [], name op.name(), spread Rule, result |t| t.binary(*op, *a, *b);
        /// Computes `a * b + c`, rounded once.
        pure Fma = "fma" {
            /// The first factor.
            a: Value,
            /// The second factor.
            b: Value,
            /// The summand.
            c: Value,
        }
        teams [], name "fma", spread Operands, result |t| t.fma(*a, *b, *c);
        /// An elementwise comparison. Result: `bool` with the same number of lanes.
        pure Compare = "compare" {
            /// The comparison.
            op: CmpOp,
            /// The left operand.
            a: Value,
            /// The right operand.
            b: Value,
        }
        teams [], name op.name(), spread Rule, result |t| t.compare(*a, *b);
        /// Selects `c ? a : b`. `c` is a `bool` scalar or has the same number of lanes.
        pure Select = "select" {
            /// The condition.
            c: Value,
            /// The result if the condition is true.
            a: Value,
            /// The result if the condition is false.
            b: Value,
        }
        teams [], name "select", spread Operands, result |t| t.select(*c, *a, *b);
        /// Converts values to the result's element type. Floats round to nearest even. A conversion
        /// from float to integer truncates and saturates. A conversion to fp8 saturates to the
        /// largest finite value.
        pure Convert = "convert" {
            /// The scalar or vector of numbers that is converted.
            a: Value,
        }
        teams [], name "to", spread Operands, result |t| t.convert(*a);
        /// Reinterprets the bits as another type of the same size.
        pure Bitcast = "bitcast" {
            /// The scalar or vector whose bits are reinterpreted.
            a: Value,
        }
        teams [], name "bitcast", spread Operands, result |t| t.bitcast(*a);
        /// Makes a vector from one scalar.
        pure Splat = "splat" {
            /// The scalar that every lane of the vector gets.
            a: Value,
        }
        teams [], name "splat", spread Operands, result |t| t.splat(*a);
        /// Makes a vector from the lanes of scalars and vectors, in order.
        pure Concat = "concat" {
            /// The scalars and vectors whose lanes are concatenated, in order.
            parts: Vec<Value>,
        }
        teams [], name "concat", spread Operands, result |t| t.concat(parts);
        /// Takes consecutive lanes of a vector from `first`. The result's type gives their number.
        pure Slice = "slice" {
            /// The vector that lanes are taken from.
            a: Value,
            /// The first lane that is taken.
            first: u32,
        }
        teams [], name "slice", spread Operands, result |t| t.slice(*a, *first);
        /// Takes one lane of a vector, selected by a run-time index.
        pure Extract = "extract" {
            /// The vector that the lane is taken from.
            a: Value,
            /// The index of the lane (`i64` or `i32`).
            lane: Value,
        }
        teams [], name "extract", spread Operands, result |t| t.extract(*a, *lane);
        /// Replaces one lane of a vector.
        pure Insert = "insert" {
            /// The vector whose other lanes the result keeps.
            a: Value,
            /// The index of the lane (`i64` or `i32`).
            lane: Value,
            /// The new value of the lane.
            elem: Value,
        }
        teams [], name "insert", spread Operands, result |t| t.insert(*a, *lane, *elem);
    }
}

/// The name of a barrier of threads in the source language.
fn sync_name(group: Group) -> &'static str {
    match group {
        Group::Thread | Group::Warp => "sync_warp",
        Group::Block => "sync_threads",
        Group::Cluster => "sync_cluster",
    }
}

family! {
    /// Special registers, and synchronisation of threads.
    Thread {
        /// Reads a special register. Result: `i32`.
        pure Special = "special" {
            /// The register.
            reg: Sreg,
            /// The dimension that is read.
            dim: Dim,
        }
        teams [], name reg.name(), spread Rule, result |t| t.scalar(Scalar::I32);
        /// Orders earlier accesses before later ones.
        effect Fence = "fence" {
            /// The memory order: `acquire`, `release`, `acq_rel` or `sc`.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [], writes [], order Some((*sem, FENCES)), group None,
        teams [], name "fence", spread Operands, result |t| t.unit();
        /// Reads the clock of the multiprocessor, in cycles. Result: `i64`.
        effect Clock = "clock" {
        }
        reads [], writes [], order None, group None,
        teams [], name "clock", spread Threads, result |t| t.scalar(Scalar::I64);
        /// Reads the timer of the GPU, in nanoseconds. Result: `i64`.
        effect GlobalTime = "global_time" {
        }
        reads [], writes [], order None, group None,
        teams [], name "global_time", spread Threads, result |t| t.scalar(Scalar::I64);
        /// Orders accesses to GPU memory before copies of tiles that begin later. It covers the
        /// thread's own accesses and those of other threads that it has observed.
        effect AsyncFence = "fence_async" {
        }
        reads [], writes [], order None, group None,
        teams [], name "fence<async>", spread Operands, result |t| t.unit();
        /// Waits for all threads of the group.
        effect GroupBarrier = "group_barrier" {
            /// The threads that wait for each other.
            group: Group,
        }
        reads [], writes [], order None, group Some(*group),
        teams [], name sync_name(*group), spread Same, result |t| t.unit();
        /// Arrives at the barrier of the cluster and does not wait.
        effect ClusterArrive = "cluster_arrive" {
        }
        reads [], writes [], order None, group Some(Group::Cluster),
        teams [], name "cluster_arrive", spread Same, result |t| t.unit();
        /// Waits until all threads of the cluster have arrived at its barrier.
        effect ClusterWait = "cluster_wait" {
        }
        reads [], writes [], order None, group Some(Group::Cluster),
        teams [], name "cluster_wait", spread Same, result |t| t.unit();
        /// Allows the next launch to begin as soon as all CTAs have reached this op or ended.
        effect LaunchDependents = "launch_dependents" {
        }
        reads [], writes [], order None, group None,
        teams [], name "launch_dependents", spread Operands, result |t| t.unit();
        /// Waits until the previous launches have ended, and makes their writes visible.
        effect WaitDependencies = "wait_dependencies" {
        }
        reads [], writes [], order None, group None,
        teams [], name "wait_dependencies", spread Operands, result |t| t.unit();
        /// Reads another lane's value (`shfl.sync` with all lanes).
        effect Shuffle = "shuffle" {
            /// The scalar or vector that the selected lane passes on.
            value: Value,
            /// The way in which the lane is selected.
            mode: ShuffleMode,
            /// The operand that selects the lane (`i32`).
            lane: Value,
        }
        reads [], writes [], order None, group Some(Group::Warp),
        teams [], name "shuffle", spread Rule, result |t| t.shuffle(*value, *lane);
        /// Whether a condition is true in all lanes of the warp, or in at least one (`vote.sync`
        /// with all lanes).
        effect Vote = "vote" {
            /// `And` for all lanes, `Or` for at least one.
            op: RedOp,
            /// The condition (`bool`).
            cond: Value,
        }
        reads [], writes [], order None, group Some(Group::Warp),
        teams [], name "vote", spread Rule, result |t| t.vote(*op, *cond);
    }
}

family! {
    /// Parameters and variables.
    Var {
        /// Reads a kernel parameter.
        pure Param = "param" {
            /// The position among the kernel's parameters.
            index: u32,
        }
        teams [], name "a parameter", spread Operands, result |t| t.param(*index);
        /// The variable of a loop (`i64`), with what is known of its values.
        pure LoopVar = "loop_var" {
            /// The least value.
            min: i64,
            /// The greatest value, or `i64::MAX` if it is unknown.
            max: i64,
            /// A divisor of all values.
            div: i64,
        }
        teams [], name "a loop variable", spread Operands, result |t| t.scalar(Scalar::I64);
        /// Reads a local variable.
        effect LocalGet = "local_get" {
            /// The variable.
            local: LocalId,
        }
        reads [], writes [], order None, group None,
        teams [], name "a variable", spread Rule, result |t| t.local_get(*local);
        /// Writes a local variable.
        effect LocalSet = "local_set" {
            /// The variable.
            local: LocalId,
            /// The new value.
            value: Value,
        }
        reads [], writes [], order None, group None,
        teams [], name "an assignment", spread Rule, result |t| t.local_set(*local, *value);
    }
}

family! {
    /// Structured control flow.
    Control {
        /// Runs one of two blocks.
        effect If = "if" {
            /// The condition (`bool`).
            cond: Value,
            /// The block that runs if the condition is true.
            then: Block,
            /// The block that runs if the condition is false.
            otherwise: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "if", spread Rule, result |t| t.condition(*cond);
        /// The loop `for var in lo..hi` by `step` (> 0). All are `i64`.
        effect For = "for" {
            /// The loop variable: a [`Var::LoopVar`] that is in no block.
            var: Induction,
            /// The first value.
            lo: Value,
            /// The bound that the variable stays below.
            hi: Value,
            /// The distance between consecutive values.
            step: Value,
            /// The unroll factor: 1 does not unroll, and 0 unrolls completely.
            unroll: u32,
            /// The body of the loop.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "for", spread Rule, result |t| t.loop_bounds([*lo, *hi, *step]);
        /// Runs `head`, and runs `body` for as long as the condition of `head` is true.
        effect While = "while" {
            /// Computes the condition.
            head: Block,
            /// The condition (`bool`), which `head` computes.
            cond: Value,
            /// The body of the loop.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "while", spread Rule, result |t| t.condition(*cond);
        /// Runs `body` once. A `break` in it leaves it and continues after it.
        effect Once = "once" {
            /// The body of the loop.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "a block that can be left", spread Rule, result |t| t.unit();
        /// A group of warps of the CTA that runs code of its own. Within the body the group takes
        /// the place of the CTA: its threads are numbered from 0, and a barrier of the CTA waits
        /// for them only.
        effect Role = "role" {
            /// The name of the role in messages. It is empty for a role that holds other roles.
            name: Arc<str>,
            /// The index of the first thread in the CTA, a multiple of 32.
            first: u32,
            /// The number of threads, a multiple of 32.
            threads: u32,
            /// The number of registers of each thread. 0 keeps the number that the launch gives.
            regs: u32,
            /// The code that its threads run.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "role", spread Rule, result |t| t.unit();
        /// Leaves a surrounding loop or `once`. Like every jump, it is the last op of its block.
        effect Break = "break" {
            /// The number of loops and `once` between the jump and the one that it leaves.
            depth: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "break", spread Rule, result |t| t.unit();
        /// Continues with the next round of a surrounding loop.
        effect Continue = "continue" {
            /// The number of loops and `once` between the jump and the loop.
            depth: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "continue", spread Rule, result |t| t.unit();
        /// Ends the kernel for the thread.
        effect Return = "return" {
        }
        reads [], writes [], order None, group None,
        teams [], name "return", spread Rule, result |t| t.unit();
    }
}

impl Control {
    /// Whether it is a jump, which must be the last op of its block.
    pub fn is_jump(&self) -> bool {
        match self {
            Control::Break { .. } | Control::Continue { .. } | Control::Return {} => true,
            Control::If { .. }
            | Control::For { .. }
            | Control::While { .. }
            | Control::Once { .. }
            | Control::Role { .. } => false,
        }
    }
}

family! {
    /// Messages, and the end of a kernel with an error.
    Debug {
        /// `printf` on the device: `%d`, `%f`, ... as in C.
        effect Print = "print" {
            /// The format string.
            format: Arc<str>,
            /// The scalars that are printed.
            args: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "print", spread Operands, result |t| t.print(args);
        /// Ends the kernel with an error.
        effect Trap = "trap" {
        }
        reads [], writes [], order None, group None,
        teams [], name "trap", spread Operands, result |t| t.unit();
        /// Ends the kernel with an error that names the condition and its place if a condition does
        /// not hold.
        effect Assert = "assert" {
            /// The condition (`bool`).
            cond: Value,
            /// The text of the message.
            text: Arc<str>,
        }
        reads [], writes [], order None, group None,
        teams [], name "assert", spread Operands, result |t| t.condition(*cond);
    }
}
