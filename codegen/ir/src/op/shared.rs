//! The ops that both levels have.

use super::Spread::{Operands, Rule, Same, Threads};
use crate::kernel::{Block, Induction, LocalId, Value};
use crate::names::{BinOp, CmpOp, Dim, Group, Scalar, Scope, Sem, ShuffleMode, Sreg, UnOp};
use std::sync::Arc;

/// A literal of one type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Constant {
    /// A truth value, `true` or `false`.
    Bool(bool),
    /// Integer of any type.
    Int(i64),
    /// Float of any type, rounded to it once.
    Float(f64),
}

/// The orders of a fence.
const FENCES: &[Sem] = &[Sem::Acquire, Sem::Release, Sem::AcqRel, Sem::SeqCst];

family! {
    /// Arithmetic on scalars and vectors.
    Arith {
        /// A literal of the result's type.
        pure Const = "const" {
            /// Its value.
            value: Constant,
        }
        teams [], name "a literal", spread Operands, result |t| t.constant(*value);
        /// Elementwise, one operand. Result: the operand's type.
        pure Unary = "unary" {
            /// The operation.
            op: UnOp,
            /// Operand.
            a: Value,
        }
        teams [], name op.name(), spread Operands, result |t| t.unary(*op, *a);
        /// Elementwise, two operands of one type. Result: that type.
        pure Binary = "binary" {
            /// The operation.
            op: BinOp,
            /// Left operand.
            a: Value,
            /// Right operand.
            b: Value,
        }
        teams [], name op.name(), spread Rule, result |t| t.binary(*op, *a, *b);
        /// `a * b + c`, rounded once.
        pure Fma = "fma" {
            /// First factor.
            a: Value,
            /// Second factor.
            b: Value,
            /// Summand.
            c: Value,
        }
        teams [], name "fma", spread Operands, result |t| t.fma(*a, *b, *c);
        /// Elementwise comparison. Result: `bool` of the same lanes.
        pure Compare = "compare" {
            /// The comparison.
            op: CmpOp,
            /// Left operand.
            a: Value,
            /// Right operand.
            b: Value,
        }
        teams [], name op.name(), spread Rule, result |t| t.compare(*a, *b);
        /// `c ? a : b`; `c` is `bool`, a scalar or of the same lanes.
        pure Select = "select" {
            /// Condition.
            c: Value,
            /// The result if the condition is true.
            a: Value,
            /// The result if the condition is false.
            b: Value,
        }
        teams [], name "select", spread Operands, result |t| t.select(*c, *a, *b);
        /// Value conversion to the result's element type: rounds to nearest even, float to integer truncates and
        /// saturates, to fp8 saturates to the largest finite value.
        pure Convert = "convert" {
            /// Operand.
            a: Value,
        }
        teams [], name "to", spread Operands, result |t| t.convert(*a);
        /// The same bits as another type of the same size.
        pure Bitcast = "bitcast" {
            /// Operand.
            a: Value,
        }
        teams [], name "bitcast", spread Operands, result |t| t.bitcast(*a);
        /// A vector of one scalar.
        pure Splat = "splat" {
            /// Operand.
            a: Value,
        }
        teams [], name "splat", spread Operands, result |t| t.splat(*a);
        /// A vector of the lanes of scalars and vectors, in order.
        pure Concat = "concat" {
            /// Operands.
            parts: Vec<Value>,
        }
        teams [], name "concat", spread Operands, result |t| t.concat(parts);
        /// `lanes` (the result's) consecutive lanes of a vector from `first`.
        pure Slice = "slice" {
            /// Vector.
            a: Value,
            /// First lane.
            first: u32,
        }
        teams [], name "slice", spread Operands, result |t| t.slice(*a, *first);
        /// One lane of a vector, by a run-time index.
        pure Extract = "extract" {
            /// Vector.
            a: Value,
            /// Lane (`i64` or `i32`).
            lane: Value,
        }
        teams [], name "extract", spread Operands, result |t| t.extract(*a, *lane);
        /// The vector with one lane replaced.
        pure Insert = "insert" {
            /// Vector.
            a: Value,
            /// Lane (`i64` or `i32`).
            lane: Value,
            /// New lane.
            elem: Value,
        }
        teams [], name "insert", spread Operands, result |t| t.insert(*a, *lane, *elem);
    }
}

/// The name of a barrier of threads.
fn sync_name(group: Group) -> &'static str {
    match group {
        Group::Thread | Group::Warp => "sync_warp",
        Group::Block => "sync_threads",
        Group::Cluster => "sync_cluster",
    }
}

family! {
    /// Threads: who they are, and how they wait for each other.
    Thread {
        /// A special register. Result: `i32`.
        pure Special = "special" {
            /// The register.
            reg: Sreg,
            /// The dimension that it is read in.
            dim: Dim,
        }
        teams [], name reg.name(), spread Rule, result |t| t.scalar(Scalar::I32);
        /// Orders earlier accesses before later ones.
        effect Fence = "fence" {
            /// `acquire`, `release`, `acq_rel` or `sc`.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [], writes [], order Some((*sem, FENCES)), group None,
        teams [], name "fence", spread Operands, result |t| t.unit();
        /// The clock of the multiprocessor, in cycles. Result: `i64`.
        effect Clock = "clock" {
        }
        reads [], writes [], order None, group None,
        teams [], name "clock", spread Threads, result |t| t.scalar(Scalar::I64);
        /// The timer of the GPU, in nanoseconds. Result: `i64`.
        effect GlobalTime = "global_time" {
        }
        reads [], writes [], order None, group None,
        teams [], name "global_time", spread Threads, result |t| t.scalar(Scalar::I64);
        /// Orders the thread's accesses to memory of GPUs, and those of others that it has seen, before copies of tiles that
        /// begin later.
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
        /// Arrives at the barrier of the cluster, and waits for nobody.
        effect ClusterArrive = "cluster_arrive" {
        }
        reads [], writes [], order None, group Some(Group::Cluster),
        teams [], name "cluster_arrive", spread Same, result |t| t.unit();
        /// Waits until all threads of the cluster have arrived at its barrier.
        effect ClusterWait = "cluster_wait" {
        }
        reads [], writes [], order None, group Some(Group::Cluster),
        teams [], name "cluster_wait", spread Same, result |t| t.unit();
        /// Lets the launch behind this one begin, as soon as all CTAs have come here or ended.
        effect LaunchDependents = "launch_dependents" {
        }
        reads [], writes [], order None, group None,
        teams [], name "launch_dependents", spread Operands, result |t| t.unit();
        /// Waits until the launches in front of this one have ended, and sees what they wrote.
        effect WaitDependencies = "wait_dependencies" {
        }
        reads [], writes [], order None, group None,
        teams [], name "wait_dependencies", spread Operands, result |t| t.unit();
        /// Reads another lane's value (`shfl.sync` with all lanes).
        effect Shuffle = "shuffle" {
            /// Operand.
            value: Value,
            /// How the lane is picked.
            mode: ShuffleMode,
            /// What picks it (`i32`).
            lane: Value,
        }
        reads [], writes [], order None, group Some(Group::Warp),
        teams [], name "shuffle", spread Rule, result |t| t.shuffle(*value, *lane);
    }
}

family! {
    /// Parameters and variables.
    Var {
        /// A kernel parameter.
        pure Param = "param" {
            /// Its position among the kernel's parameters.
            index: u32,
        }
        teams [], name "a parameter", spread Operands, result |t| t.param(*index);
        /// The variable of a loop (`i64`), with what is known of its values.
        pure LoopVar = "loop_var" {
            /// Least value.
            min: i64,
            /// Greatest value; `i64::MAX` where unknown.
            max: i64,
            /// A divisor of all of them.
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
            /// New value.
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
            /// `bool`.
            cond: Value,
            /// Runs if the condition is true.
            then: Block,
            /// Runs if the condition is false.
            otherwise: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "if", spread Rule, result |t| t.condition(*cond);
        /// `for var in lo..hi` by `step` (> 0), all `i64`.
        effect For = "for" {
            /// The loop variable: a [`Var::LoopVar`] that is in no block.
            var: Induction,
            /// First value.
            lo: Value,
            /// One past the last.
            hi: Value,
            /// Distance.
            step: Value,
            /// How many rounds may be in flight at once; 1 is none, 0 is all.
            unroll: u32,
            /// The body.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "for", spread Rule, result |t| t.loop_bounds([*lo, *hi, *step]);
        /// Runs `head`, and while its `cond` is true, `body`.
        effect While = "while" {
            /// Computes the condition.
            head: Block,
            /// `bool`, computed in `head`.
            cond: Value,
            /// The body.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "while", spread Rule, result |t| t.condition(*cond);
        /// Runs `body` once. What it is for is the `break` in it, which goes on behind it.
        effect Once = "once" {
            /// The body.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "a block that can be left", spread Rule, result |t| t.unit();
        /// A group of warps of the CTA with code of its own. In the body, everything that is said of a CTA holds of the
        /// group: its threads are numbered from 0, and they are all that a barrier of the CTA waits for.
        effect Role = "role" {
            /// Its name, for people; empty for one that holds other roles.
            name: Arc<str>,
            /// Its first thread in the CTA: a multiple of 32.
            first: u32,
            /// Its threads: a multiple of 32.
            threads: u32,
            /// Registers of each thread; 0 leaves them as they are.
            regs: u32,
            /// What its threads run.
            body: Block,
        }
        reads [], writes [], order None, group None,
        teams [], name "role", spread Rule, result |t| t.unit();
        /// Leaves a loop or a `once` around it. It is the last op of its block, as every jump is.
        effect Break = "break" {
            /// How many loops and `once` lie between it and the one that it leaves.
            depth: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "break", spread Rule, result |t| t.unit();
        /// Goes on with the next round of a loop around it.
        effect Continue = "continue" {
            /// How many loops and `once` lie between it and the loop.
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
    /// Whether it is a jump, which is the last op of its block.
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
            /// Format.
            format: Arc<str>,
            /// Scalars.
            args: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "print", spread Operands, result |t| t.print(args);
        /// Ends the kernel with an error.
        effect Trap = "trap" {
        }
        reads [], writes [], order None, group None,
        teams [], name "trap", spread Operands, result |t| t.unit();
        /// Ends the kernel with an error where a condition does not hold, and says which and where.
        effect Assert = "assert" {
            /// `bool`.
            cond: Value,
            /// What is expected, for people.
            text: Arc<str>,
        }
        reads [], writes [], order None, group None,
        teams [], name "assert", spread Operands, result |t| t.condition(*cond);
    }
}
