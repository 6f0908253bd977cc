//! The ops, in families. Pure ones compute a value from values; the others have an effect and keep their order.
//!
//! Text form: `%result = mnemonic field, field, ... : type`, the fields in the order of the declaration.

#[macro_use]
mod declare;

use crate::kernel::{Block, Induction, LocalId, TeamRef, Value};
use crate::names::{
    AmoOp, BinOp, CmpOp, Dim, Group, MoveKind, RedOp, Scalar, Scope, Sem, ShuffleMode, SignalKind,
};
use crate::names::{Sreg, UnOp, WaitFor};
use crate::text::{Field, ParseError, Printer, Reader};
use std::sync::Arc;
use weft_layout::Int;

/// A literal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Constant {
    /// Truth value.
    Bool(bool),
    /// Integer of any type.
    Int(i64),
    /// Float of any type, rounded to it once.
    Float(f64),
}

ops! {
    // ---- arithmetic -------------------------------------------------------------------------------------
    /// A literal of the result's type.
    pure Const = "const" {
        /// Its value.
        value: Constant,
    }
    /// A symbolic integer as a value (`i64`): extents, offsets, everything layouts are made of.
    pure Index = "index" {
        /// The expression; its variables are values of type `i64` or `i32`.
        expr: Int,
    }
    /// Elementwise, one operand. Result: the operand's type.
    pure Unary = "unary" {
        /// Which.
        op: UnOp,
        /// Operand.
        a: Value,
    }
    /// Elementwise, two operands of one type. Result: that type.
    pure Binary = "binary" {
        /// Which.
        op: BinOp,
        /// Left.
        a: Value,
        /// Right.
        b: Value,
    }
    /// `a * b + c`, rounded once.
    pure Fma = "fma" {
        /// Factor.
        a: Value,
        /// Factor.
        b: Value,
        /// Summand.
        c: Value,
    }
    /// Elementwise comparison. Result: `bool` of the same lanes.
    pure Compare = "compare" {
        /// Which.
        op: CmpOp,
        /// Left.
        a: Value,
        /// Right.
        b: Value,
    }
    /// `c ? a : b`; `c` is `bool`, a scalar or of the same lanes.
    pure Select = "select" {
        /// Condition.
        c: Value,
        /// If true.
        a: Value,
        /// If false.
        b: Value,
    }
    /// Value conversion to the result's element type: rounds to nearest even, float to integer truncates and
    /// saturates, to fp8 saturates to the largest finite value.
    pure Convert = "convert" {
        /// Operand.
        a: Value,
    }
    /// The same bits as another type of the same size.
    pure Bitcast = "bitcast" {
        /// Operand.
        a: Value,
    }
    /// A vector of one scalar.
    pure Splat = "splat" {
        /// Operand.
        a: Value,
    }
    /// A vector of the lanes of scalars and vectors, in order.
    pure Concat = "concat" {
        /// Operands.
        parts: Vec<Value>,
    }
    /// `lanes` (the result's) consecutive lanes of a vector from `first`.
    pure Slice = "slice" {
        /// Vector.
        a: Value,
        /// First lane.
        first: u32,
    }
    /// One lane of a vector, by a run-time index.
    pure Extract = "extract" {
        /// Vector.
        a: Value,
        /// Lane (`i64` or `i32`).
        lane: Value,
    }
    /// The vector with one lane replaced.
    pure Insert = "insert" {
        /// Vector.
        a: Value,
        /// Lane (`i64` or `i32`).
        lane: Value,
        /// New lane.
        elem: Value,
    }
    // ---- where am I -------------------------------------------------------------------------------------
    /// A special register. Result: `i32`.
    pure Special = "special" {
        /// Which.
        reg: Sreg,
        /// Of which dimension.
        dim: Dim,
    }
    /// A kernel parameter.
    pure Param = "param" {
        /// Position in [`Kernel::params`](crate::kernel::Kernel).
        index: u32,
    }
    /// This PE's rank in a team. Result: `i32`.
    pure MyPe = "my_pe" {
        /// The team.
        team: TeamRef,
    }
    /// PEs of a team. Result: `i32`.
    pure NPes = "n_pes" {
        /// The team.
        team: TeamRef,
    }
    // ---- tensors ----------------------------------------------------------------------------------------
    /// A part of a tensor: the result's layout (and bounds), `offset` elements from the base's first.
    pure View = "view" {
        /// Tensor.
        base: Value,
        /// Elements from the base's first element.
        offset: Int,
    }
    /// The same layout at the team's multicast address.
    pure Multicast = "multicast" {
        /// A symmetric tensor.
        base: Value,
        /// The team.
        team: TeamRef,
    }
    /// The same layout in another PE's memory.
    pure Peer = "peer" {
        /// A symmetric tensor.
        base: Value,
        /// The team that ranks count in.
        team: TeamRef,
        /// Rank in the team (`i32`).
        pe: Value,
    }
    /// A tensor in the CTA's shared memory, allocated for the whole kernel, uninitialised.
    pure SharedAlloc = "shared_alloc" {
        /// As the text names it; may be empty.
        name: Arc<str>,
    }
    // ---- memory -----------------------------------------------------------------------------------------
    /// Reads a tensor's elements, in coordinate order (mode 0 fastest); those out of bounds read as 0.
    effect Load = "load" {
        /// A tensor, or after lowering a pointer.
        place: Value,
        /// `weak`, `relaxed` or `acquire`.
        sem: Sem,
        /// Of a strong access.
        scope: Scope,
    }
    /// Writes a tensor's elements, in coordinate order; those out of bounds are left alone.
    effect Store = "store" {
        /// A tensor, or after lowering a pointer.
        place: Value,
        /// One lane an element.
        value: Value,
        /// `weak`, `relaxed` or `release`.
        sem: Sem,
        /// Of a strong access.
        scope: Scope,
    }
    /// `multimem.ld_reduce`: the reduction over the team of every PE's element (PTX ISA, multimem).
    effect LdReduce = "ld_reduce" {
        /// A tensor, or after lowering a pointer, in multicast space.
        place: Value,
        /// Reduction.
        op: RedOp,
        /// Precision it is summed in: the element's own type, or a wider one.
        acc: Scalar,
        /// `weak`, `relaxed` or `acquire`.
        sem: Sem,
        /// Of a strong access.
        scope: Scope,
    }
    /// `multimem.st`: the value to every PE of the team.
    effect McStore = "mc_store" {
        /// A tensor, or after lowering a pointer, in multicast space.
        place: Value,
        /// One lane an element.
        value: Value,
        /// `weak`, `relaxed` or `release`.
        sem: Sem,
        /// Of a strong access.
        scope: Scope,
    }
    /// `multimem.red`: reduces the value into every PE's element, atomically.
    effect McRed = "mc_red" {
        /// A tensor, or after lowering a pointer, in multicast space.
        place: Value,
        /// One lane an element.
        value: Value,
        /// Reduction.
        op: RedOp,
        /// `relaxed` or `release`.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    /// Atomic read-modify-write of each element, without the old value.
    effect Red = "red" {
        /// A tensor, or after lowering a pointer.
        place: Value,
        /// One lane an element.
        value: Value,
        /// Reduction.
        op: RedOp,
        /// `relaxed` or `release`.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    /// Atomic read-modify-write of one element. Result: the old value.
    effect Atomic = "atomic" {
        /// A tensor of one element, or after lowering a pointer.
        place: Value,
        /// Operand.
        value: Value,
        /// Reduction; none exchanges.
        op: Option<RedOp>,
        /// Order.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    /// Atomic compare and swap of one element. Result: the old value.
    effect AtomicCas = "atomic_cas" {
        /// A tensor of one element, or after lowering a pointer.
        place: Value,
        /// Compared with.
        expected: Value,
        /// Stored if equal.
        value: Value,
        /// Order.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    /// Orders earlier accesses before later ones.
    effect Fence = "fence" {
        /// `acquire`, `release`, `acq_rel` or `sc`.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    // ---- threads together: every thread of the group must come here --------------------------------------
    /// Waits for all threads of the group.
    effect GroupBarrier = "group_barrier" {
        /// Which threads.
        group: Group,
    }
    /// Does nothing, where every thread of the group must come: a tensor dealt out over them is accessed here.
    effect Converge = "converge" {
        /// Which threads.
        group: Group,
    }
    /// Waits for the CTAs of the same index on every PE of the team. Epoch-counted: nothing is reset,
    /// launches may follow each other. `release` arrives, `acquire` waits, `acq_rel` both in order.
    effect TeamBarrier = "team_barrier" {
        /// The counters.
        sync: Value,
        /// The team.
        team: TeamRef,
        /// Order.
        sem: Sem,
        /// Who must agree.
        scope: Scope,
    }
    /// Reduces each lane over the threads of the group; all get the result. Order: a tree fixed by the thread index.
    effect Reduce = "reduce" {
        /// Operand.
        value: Value,
        /// Reduction.
        op: RedOp,
        /// Which threads.
        group: Group,
    }
    /// Reads another lane's value (`shfl.sync` with all lanes).
    effect Shuffle = "shuffle" {
        /// Operand.
        value: Value,
        /// How the lane is picked.
        mode: ShuffleMode,
        /// By what (`i32`).
        lane: Value,
    }
    // ---- remote memory: NVSHMEM's operations, ranks counted in `team` ----------------------------------------
    /// Copies a local tensor to another PE's part of a symmetric one. At return the source may be reused, unless it
    /// is `nbi` (non-blocking); the data has arrived after a `quiet` or barrier.
    effect Put = "put" {
        /// Symmetric tensor: its place on the other PE is written.
        dst: Value,
        /// Tensor of this PE.
        src: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
        /// Returns before the source is read; a `quiet` waits for it.
        nbi: bool,
        /// Threads that do it together, with the same arguments.
        group: Group,
    }
    /// Copies another PE's part of a symmetric tensor to a local one. The data is there at return, unless it is `nbi`.
    effect Get = "get" {
        /// Tensor of this PE.
        dst: Value,
        /// Symmetric tensor: its place on the other PE is read.
        src: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
        /// Returns before the data is there; a `quiet` waits for it.
        nbi: bool,
        /// Threads that do it together, with the same arguments.
        group: Group,
    }
    /// `put`, and after the data is there, an update of a signal on that PE.
    effect PutSignal = "put_signal" {
        /// Symmetric tensor: its place on the other PE is written.
        dst: Value,
        /// Tensor of this PE.
        src: Value,
        /// Symmetric `u64`.
        signal: Value,
        /// How it is updated.
        op: SignalKind,
        /// By what (`u64`).
        value: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
        /// Returns before the source is read; a `quiet` waits for it.
        nbi: bool,
        /// Threads that do it together, with the same arguments.
        group: Group,
    }
    /// Writes one element on another PE.
    effect PutValue = "p" {
        /// Symmetric tensor of one element.
        dst: Value,
        /// Of its element type.
        value: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
    }
    /// Reads one element of another PE. Result: the element.
    effect GetValue = "g" {
        /// Symmetric tensor of one element.
        src: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
    }
    /// Updates a signal on another PE.
    effect SignalOp = "signal_op" {
        /// Symmetric `u64`.
        signal: Value,
        /// How it is updated.
        op: SignalKind,
        /// By what (`u64`).
        value: Value,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
    }
    /// Waits until this PE's signal compares true with a value. Result: the signal's value (`u64`).
    effect SignalWait = "signal_wait_until" {
        /// Symmetric `u64`.
        signal: Value,
        /// Comparison, the signal on the left.
        cmp: CmpOp,
        /// Compared with (`u64`).
        value: Value,
    }
    /// This PE's signal. Result: `u64`.
    effect SignalFetch = "signal_fetch" {
        /// Symmetric `u64`.
        signal: Value,
    }
    /// Waits, or tests, until variables of this PE compare true with values. Result: of `one` and `all` nothing, or
    /// `bool` for a test; of `any` the index of one that does (`i64`, -1 for none); of `some` how many do (`i64`).
    effect Wait = "wait" {
        /// Symmetric tensor; of one element for `one`.
        vars: Value,
        /// Comparison, the variable on the left.
        cmp: CmpOp,
        /// One value, or a tensor of one for each variable.
        value: Value,
        /// Which of them must compare true.
        which: WaitFor,
        /// Looks once and does not wait.
        test: bool,
        /// A tensor of `i32`, if there is one: where it is not 0 the variable is left out.
        status: Vec<Value>,
        /// For `some`: a tensor of `u64` that gets the indices of those that do.
        indices: Vec<Value>,
    }
    /// Atomic operation on one element of another PE. Result: the old value of those that fetch.
    effect Amo = "amo" {
        /// Symmetric tensor of one element.
        target: Value,
        /// Which.
        op: AmoOp,
        /// `compare_swap`: what is compared, what is stored; else one value, or none for fetch and inc.
        operands: Vec<Value>,
        /// Rank in the team (`i32`).
        pe: Value,
        /// The team that ranks count in.
        team: TeamRef,
    }
    /// Orders this PE's puts, signals and atomics to each PE before later ones to the same PE.
    effect RmaFence = "rma_fence" {
    }
    /// Waits until all puts, gets, signals and atomics of this PE are done, those of other PEs' memory included.
    effect Quiet = "quiet" {
    }
    /// Waits for the same call on all PEs of the team; a barrier is a quiet first.
    effect TeamSync = "team_sync" {
        /// The team.
        team: TeamRef,
        /// Completes remote memory operations, too.
        barrier: bool,
        /// Threads of each PE that come together.
        group: Group,
    }
    /// Reduces a tensor over the PEs of a team; all get all of it, or with `scatter` each its part.
    effect TeamReduce = "team_reduce" {
        /// Symmetric tensor: the result.
        dst: Value,
        /// Symmetric tensor; for `scatter`, a part for each PE, in rank order.
        src: Value,
        /// Reduction.
        op: RedOp,
        /// Each PE gets its part only.
        scatter: bool,
        /// The team.
        team: TeamRef,
        /// Threads of each PE that do it together.
        group: Group,
    }
    /// Exchanges tensors among the PEs of a team.
    effect TeamMove = "team_move" {
        /// How.
        kind: MoveKind,
        /// Symmetric tensor: the result.
        dst: Value,
        /// Symmetric tensor.
        src: Value,
        /// For `broadcast`: rank of the PE whose tensor it is (`i32`).
        root: Vec<Value>,
        /// The team.
        team: TeamRef,
        /// Threads of each PE that do it together.
        group: Group,
    }
    /// The rank that a PE of one team has in another; -1 where it is not in it. Result: `i32`.
    pure TranslatePe = "translate_pe" {
        /// Rank in `from` (`i32`).
        pe: Value,
        /// Its team.
        from: TeamRef,
        /// The other team.
        to: TeamRef,
    }
    // ---- control ----------------------------------------------------------------------------------------
    /// Two ways.
    effect If = "if" {
        /// `bool`.
        cond: Value,
        /// If true.
        then: Block,
        /// If false.
        otherwise: Block,
    }
    /// `for var in lo..hi` by `step` (> 0), all `i64`.
    effect For = "for" {
        /// The loop variable: an [`Op::LoopVar`] that stands in no block.
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
    /// Runs `head`, and while its `cond` is true, `body`.
    effect While = "while" {
        /// Computes the condition.
        head: Block,
        /// `bool`, computed in `head`.
        cond: Value,
        /// The body.
        body: Block,
    }
    /// The variable of a loop (`i64`), with what is known of its values.
    pure LoopVar = "loop_var" {
        /// Least.
        min: i64,
        /// Greatest; `i64::MAX` where unknown.
        max: i64,
        /// A divisor of all of them.
        div: i64,
    }
    /// Reads a local variable.
    effect LocalGet = "local_get" {
        /// Which.
        local: LocalId,
    }
    /// Writes a local variable.
    effect LocalSet = "local_set" {
        /// Which.
        local: LocalId,
        /// New value.
        value: Value,
    }
    // ---- addresses (made by lowering) --------------------------------------------------------------------
    /// The address `bytes` further on. Result: a pointer to the same space.
    pure PtrAdd = "ptr_add" {
        /// Pointer; or a tensor (a parameter, shared memory) or barrier, for its first byte.
        ptr: Value,
        /// Signed byte offset (`i64`).
        bytes: Value,
    }
    /// An address made of an `i64`.
    pure IntToPtr = "int_to_ptr" {
        /// Address.
        a: Value,
    }
    // ---- calls (made by lowering) ------------------------------------------------------------------------
    /// Calls a function of a device library, by its C name. Result: what it returns, or `unit`.
    /// Pointers are passed as addresses of any memory.
    effect Call = "call" {
        /// Name.
        function: Arc<str>,
        /// Pointers, integers, `f32` and `f64`.
        args: Vec<Value>,
    }
    // ---- debugging --------------------------------------------------------------------------------------
    /// `printf` on the device: `%d`, `%f`, ... as in C.
    effect Print = "print" {
        /// Format.
        format: Arc<str>,
        /// Scalars.
        args: Vec<Value>,
    }
    /// Ends the kernel with an error.
    effect Trap = "trap" {
    }
}
