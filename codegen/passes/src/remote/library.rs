//! The names and calls of NVSHMEM's functions (NVSHMEM API; the C names of its device library).

use weft_ir::builder::Built;
use weft_ir::mixed::{Builder, Type};
use weft_ir::{Call, CmpOp, Group, RedOp, Scalar, SignalKind, Value};

/// The value of `NVSHMEM_TEAM_WORLD`.
pub(crate) const TEAM_WORLD: i64 = 0;

/// Calls a function.
pub(crate) fn call(b: &mut Builder, function: &str, args: Vec<Value>, result: Type) -> Built<Value> {
    b.emit_as(Call::Function { function: function.into(), args }, result)
}

/// The name of a function for a group of threads, such as `nvshmem_quiet` or
/// `nvshmemx_putmem_block`.
pub(super) fn of_group(name: &str, group: Group) -> String {
    match group {
        Group::Thread => format!("nvshmem_{name}"),
        group => format!("nvshmemx_{name}_{group}"),
    }
}

/// The largest group of threads that can call a function together. It is a single thread if some
/// warps are not whole.
pub(super) fn callable_group(group: Group, b: &Builder) -> Group {
    match group {
        Group::Warp if !b.kernel().threads().is_multiple_of(32) => Group::Thread,
        group => group,
    }
}

/// The name of a type in functions that wait. They use C's names for 16 bits.
pub(super) fn waited_name(s: Scalar) -> Option<&'static str> {
    match s {
        Scalar::I16 => Some("short"),
        Scalar::U16 => Some("ushort"),
        s if s.is_int() && s.bits() >= 32 => s.nvshmem_name(),
        _ => None,
    }
}

/// The integer type that moves an element of a number of bytes, and its name.
pub(super) fn carrier(bytes: u32) -> (Scalar, &'static str) {
    match bytes {
        1 => (Scalar::U8, "uint8"),
        2 => (Scalar::U16, "uint16"),
        4 => (Scalar::U32, "uint32"),
        _ => (Scalar::U64, "uint64"),
    }
}

/// The value of a comparison such as `NVSHMEM_CMP_EQ`.
pub(super) fn comparison(cmp: CmpOp) -> i64 {
    match cmp {
        CmpOp::Eq => 0,
        CmpOp::Ne => 1,
        CmpOp::Gt => 2,
        CmpOp::Le => 3,
        CmpOp::Lt => 4,
        CmpOp::Ge => 5,
    }
}

/// The value of `NVSHMEM_SIGNAL_SET` or `NVSHMEM_SIGNAL_ADD`.
pub(super) fn signal_op(op: SignalKind) -> i64 {
    match op {
        SignalKind::Set => 9,
        SignalKind::Add => 10,
    }
}

/// The word for a reduction in the names of collectives.
pub(super) fn reduction(op: RedOp) -> &'static str {
    match op {
        RedOp::Add => "sum",
        RedOp::Mul => "prod",
        other => other.name(),
    }
}
