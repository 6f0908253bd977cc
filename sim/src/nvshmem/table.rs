//! The names and prototypes of the functions, as rules. A row has a pattern, the types and
//! operators that it exists for, and its scopes. The expanded rows are the names of NVSHMEM's
//! device library.

use super::{Call, Step, amo, collective, rma, signal, team};
use crate::exec::Fault;
use crate::exec::remote::{Named, Scope};
use crate::isa::reduce::{combine, combine_global};
use crate::num::Combine;
use crate::num::{float::Style, mask};
use crate::types::{Ty, TypeKind};
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// The suffix of functions that threads call together.
fn suffix(scope: Scope) -> &'static str {
    match scope {
        Scope::Thread => "",
        Scope::Warp => "_warp",
        Scope::Block => "_block",
    }
}

/// The size of a parameter or result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// The size of `int` and `nvshmem_team_t`.
    Int,
    /// The size of pointers, `size_t`, `ptrdiff_t` and `uint64_t`.
    Long,
    /// A value of the type in the name. PTX widens integers to 32 bits; half-precision values are structures of
    /// two bytes.
    Value,
}

impl Size {
    fn bytes(self, ty: Ty) -> u64 {
        match self {
            Size::Int => 4,
            Size::Long => 8,
            Size::Value if matches!(ty.kind, TypeKind::Float(_)) => ty.bytes() as u64,
            Size::Value => (ty.bytes() as u64).max(4),
        }
    }
}

pub(crate) type Param = (&'static str, Size);
pub(crate) type Perform = fn(&mut Call<'_, '_>) -> Result<Step, Fault>;

/// A function that returns the size of a call's buffer in bytes.
pub(crate) type Extent = fn(&Call<'_, '_>) -> Result<u64, Fault>;

/// A rule for names.
pub(crate) struct Row {
    /// The name after the prefix; `{T}` is a type or width, `{op}` an operator.
    pub name: &'static str,
    pub types: &'static [&'static str],
    pub ops: &'static [&'static str],
    /// Whether there are also `_warp` and `_block` forms, which begin with `nvshmemx_`.
    pub scoped: bool,
    /// Whether the thread form also begins with `nvshmemx_`.
    pub extension: bool,
    pub params: &'static [Param],
    pub result: Option<Size>,
    pub perform: Perform,
    /// The index of a buffer that NVSHMEM begins to read before all threads of the group have
    /// arrived, and its size.
    pub hasty: Option<(usize, Extent)>,
}

/// A row of functions of all scopes without a type in their names.
pub(crate) const fn row(name: &'static str, params: &'static [Param], perform: Perform) -> Row {
    let (types, ops) = (NONE, NONE);
    Row { name, types, ops, scoped: true, extension: false, params, result: None, perform, hasty: None }
}

impl Row {
    pub(crate) const fn types(self, types: &'static [&'static str]) -> Row {
        Row { types, ..self }
    }
    pub(crate) const fn ops(self, ops: &'static [&'static str]) -> Row {
        Row { ops, ..self }
    }
    /// Restricts the row to single threads.
    pub(crate) const fn thread(self) -> Row {
        Row { scoped: false, ..self }
    }
    pub(crate) const fn extension(self) -> Row {
        Row { extension: true, ..self }
    }
    pub(crate) const fn hasty(self, param: usize, extent: Extent) -> Row {
        Row { hasty: Some((param, extent)), ..self }
    }
    pub(crate) const fn returns(self, size: Size) -> Row {
        Row { result: Some(size), ..self }
    }
}

pub(crate) struct Family {
    pub title: &'static str,
    /// A few sentences that say what the simulator does.
    pub meaning: &'static str,
    pub rows: &'static [Row],
}

pub(crate) static FAMILIES: &[&Family] = &[
    &team::FAMILY,
    &rma::FAMILY,
    &signal::SIGNALS,
    &signal::WAITS,
    &amo::FAMILY,
    &team::ORDERING,
    &team::BARRIERS,
    &collective::FAMILY,
];

const NONE: &[&str] = &[""];
/// The types of `NVSHMEMI_REPT_FOR_STANDARD_RMA_TYPES`.
pub(crate) const RMA: &[&str] = &[
    "bfloat16",
    "half",
    "float",
    "double",
    "char",
    "schar",
    "short",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// Types of sums, products and extrema.
pub(crate) const REDUCE: &[&str] = &[
    "bfloat16",
    "half",
    "float",
    "double",
    "char",
    "schar",
    "short",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
];
/// Types of bitwise reductions.
pub(crate) const LOGIC: &[&str] = &[
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
];
pub(crate) const WAIT: &[&str] = &[
    "short",
    "int",
    "long",
    "longlong",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// Types of atomic fetch, set and swap.
pub(crate) const SWAP: &[&str] = &[
    "float",
    "double",
    "int",
    "long",
    "longlong",
    "uint",
    "ulong",
    "ulonglong",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
pub(crate) const COMPARE: &[&str] = &[
    "int",
    "long",
    "longlong",
    "uint",
    "ulong",
    "ulonglong",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// Types of atomic add and increment. NVSHMEM has no `int64` and `longlong` here.
pub(crate) const ADD: &[&str] =
    &["int", "long", "uint", "ulong", "ulonglong", "int32", "uint32", "uint64", "size"];
pub(crate) const ADD_FLOAT: &[&str] = &["half", "float", "double"];
pub(crate) const BITWISE: &[&str] = &["uint", "ulong", "ulonglong", "int32", "int64", "uint32", "uint64"];
/// Widths in bits, and `mem` for bytes.
pub(crate) const WIDTHS: &[&str] = &["mem", "8", "16", "32", "64", "128"];
pub(crate) const BITS: &[&str] = &["8", "16", "32", "64", "128"];
pub(crate) const MEM: &[&str] = &["mem"];

/// Names of the lists for the documentation.
pub(crate) const LISTS: &[(&str, &[&str])] = &[
    ("all", RMA),
    ("numbers", REDUCE),
    ("bits", LOGIC),
    ("waits", WAIT),
    ("swap", SWAP),
    ("compare", COMPARE),
    ("add", ADD),
    ("words", BITWISE),
];

/// The PTX types of C types and widths (Linux, 64 bits).
const C_TYPES: &[(&str, &str)] = &[
    ("char", "s8"),
    ("schar", "s8"),
    ("short", "s16"),
    ("int", "s32"),
    ("long", "s64"),
    ("longlong", "s64"),
    ("uchar", "u8"),
    ("ushort", "u16"),
    ("uint", "u32"),
    ("ulong", "u64"),
    ("ulonglong", "u64"),
    ("int8", "s8"),
    ("int16", "s16"),
    ("int32", "s32"),
    ("int64", "s64"),
    ("uint8", "u8"),
    ("uint16", "u16"),
    ("uint32", "u32"),
    ("uint64", "u64"),
    ("size", "u64"),
    ("ptrdiff", "s64"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("float", "f32"),
    ("double", "f64"),
    ("mem", "b8"),
    ("8", "b8"),
    ("16", "b16"),
    ("32", "b32"),
    ("64", "b64"),
];

fn c_type(name: &str) -> Ty {
    let found = C_TYPES.iter().find(|(c, _)| *c == name).and_then(|(_, ptx)| Ty::parse(ptx));
    found.unwrap_or(if name == "128" { Ty { count: 2, ..Ty::B64 } } else { Ty::B64 })
}

/// The functions that came after 3.3, the oldest examined version, as the beginnings of their
/// names.
const LATER: &[(&str, (u32, u32))] = &[
    ("nvshmemx_flush", (3, 7)),
    ("nvshmemx_half_atomic", (3, 7)),
    ("nvshmemx_float_atomic", (3, 7)),
    ("nvshmemx_double_atomic", (3, 7)),
    // Before this version, the name was misspelt as `put6`.
    ("nvshmemx_put16_signal", (3, 8)),
];

/// One function.
pub(crate) struct Function {
    /// The index in the table.
    pub index: usize,
    pub name: String,
    pub row: &'static Row,
    pub scope: Scope,
    /// Type of the elements.
    pub ty: Ty,
    /// The sizes of the parameters in bytes.
    pub params: Vec<u64>,
    pub result: Option<u64>,
    pub since: (u32, u32),
    /// The operator on two elements.
    pub combine: Option<Combine>,
}

impl Function {
    /// The part of the function that execution needs.
    pub(crate) fn named(&'static self) -> Named {
        Named { index: self.index, name: &self.name, scope: self.scope }
    }
}

pub(crate) struct Functions {
    pub list: Vec<Function>,
    by_name: FxHashMap<String, usize>,
}

impl Functions {
    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name).map(|&i| &self.list[i])
    }
}

/// All functions, in the order of the rows.
pub(crate) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut list = Vec::new();
    for row in FAMILIES.iter().flat_map(|f| f.rows) {
        for (ty, op) in row.types.iter().flat_map(|ty| row.ops.iter().map(move |op| (*ty, *op))) {
            for scope in [Scope::Thread, Scope::Warp, Scope::Block] {
                if scope == Scope::Thread || row.scoped {
                    list.push(function(list.len(), row, ty, op, scope));
                }
            }
        }
    }
    let by_name = list.iter().map(|f| (f.name.clone(), f.index)).collect();
    Functions { list, by_name }
});

fn function(index: usize, row: &'static Row, ty: &str, op: &'static str, scope: Scope) -> Function {
    let prefix = if row.extension || scope != Scope::Thread { "nvshmemx_" } else { "nvshmem_" };
    let name = format!("{prefix}{}{}", row.name.replace("{T}", ty).replace("{op}", op), suffix(scope));
    let later = LATER.iter().find(|(start, _)| name.starts_with(start));
    let ty = c_type(ty);
    Function {
        index,
        row,
        scope,
        ty,
        params: row.params.iter().map(|(_, size)| size.bytes(ty)).collect(),
        result: row.result.map(|size| size.bytes(ty)),
        since: later.map_or((3, 3), |(_, version)| *version),
        combine: operator(op, ty),
        name,
    }
}

/// Returns `op` on elements of `ty`, or `None` if the function has no operator.
fn operator(op: &str, ty: Ty) -> Option<Combine> {
    match (op, ty.kind) {
        // Atomic additions use the arithmetic of the units at memory.
        ("add" | "inc", _) => combine_global("add", ty).ok(),
        ("sum", _) => combine("add", ty).ok(),
        ("prod", TypeKind::Float(format)) => {
            let style = Style::new(format);
            Some(Box::new(move |a, b| style.mul(a, b)))
        }
        ("prod", _) => Some(Box::new(move |a, b| a.wrapping_mul(b) & mask(ty.bits))),
        ("min" | "max" | "and" | "or" | "xor", _) => combine(op, ty).ok(),
        _ => None,
    }
}
