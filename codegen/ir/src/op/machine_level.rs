//! The ops of the machine level.

use super::Spread::{Operands, Rule, Threads};
use super::here;
use super::tensor_level::{ATOMICS, LOADS, REDUCTIONS, STORES, of_read};
use crate::kernel::Value;
use crate::names::{RedOp, Scalar, Scope, Sem};
use std::sync::Arc;

family! {
    /// Arithmetic on addresses.
    Address {
        /// The address `bytes` further on. Result: a pointer to the same space.
        pure PtrAdd = "ptr_add" {
            /// Pointer.
            ptr: Value,
            /// Signed byte offset (`i64`).
            bytes: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.ptr_add(*ptr, *bytes);
        /// An address made of an `i64`.
        pure FromInt = "int_to_ptr" {
            /// Address.
            a: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.int_to_ptr(*a);
        /// An address as an `i64`.
        pure ToInt = "ptr_to_int" {
            /// Pointer.
            a: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.ptr_to_int(*a);
        /// The address of memory that all threads of the CTA share, allocated for the whole kernel, uninitialised.
        pure Shared = "shared" {
            /// Its name in the text; may be empty.
            name: Arc<str>,
            /// Its size.
            bytes: u64,
            /// Alignment of its first byte, a power of two.
            align: u32,
        }
        teams [], name "shared", spread Operands, result |t| t.shared_at(*align);
    }
}

family! {
    /// Accesses of at most 16 bytes at an address.
    Memory {
        /// Reads a value of the result's type.
        effect Load = "ld" {
            /// Address.
            ptr: Value,
            /// `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "load", spread of_read(*sem), result |t| t.read_at(*ptr, false);
        /// Writes a value.
        effect Store = "st" {
            /// Address.
            ptr: Value,
            /// The value.
            value: Value,
            /// `weak`, `relaxed` or `release`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(ptr)], order Some((*sem, STORES)), group None,
        teams [], name "store", spread Operands, result |t| t.write_at(*ptr, *value, false);
        /// `multimem.ld_reduce`: the reduction over the team of every PE's value (PTX ISA, multimem).
        effect LdReduce = "multimem_ld_reduce" {
            /// Address in multicast space.
            ptr: Value,
            /// Reduction.
            op: RedOp,
            /// Precision it is summed in: the element's own type, or a wider one.
            acc: Scalar,
            /// `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "ld_reduce", spread of_read(*sem), result |t| t.ld_reduce_at(*ptr, *op, *acc);
        /// `multimem.st`: the value to every PE of the team.
        effect McStore = "multimem_st" {
            /// Address in multicast space.
            ptr: Value,
            /// The value.
            value: Value,
            /// `weak`, `relaxed` or `release`.
            sem: Sem,
            /// Scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(ptr)], order Some((*sem, STORES)), group None,
        teams [], name "st", spread Operands, result |t| t.write_at(*ptr, *value, true);
        /// `multimem.red`: reduces the value into every PE's, atomically.
        effect McRed = "multimem_red" {
            /// Address in multicast space.
            ptr: Value,
            /// The value.
            value: Value,
            /// Reduction.
            op: RedOp,
            /// `relaxed` or `release`.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_at(*ptr, *value, Some(*op), true).and_then(|_| t.unit());
        /// Atomic read-modify-write of each lane, without the old value.
        effect Red = "atom_red" {
            /// Address.
            ptr: Value,
            /// The value.
            value: Value,
            /// Reduction.
            op: RedOp,
            /// `relaxed` or `release`.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_at(*ptr, *value, Some(*op), false).and_then(|_| t.unit());
        /// Atomic read-modify-write of one element. Result: the old value.
        effect Atomic = "atom" {
            /// Address.
            ptr: Value,
            /// Operand.
            value: Value,
            /// Reduction; none exchanges.
            op: Option<RedOp>,
            /// Order.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic", spread Threads, result |t| t.reduce_at(*ptr, *value, *op, false);
        /// Atomic compare and swap of one element. Result: the old value.
        effect AtomicCas = "atom_cas" {
            /// Address.
            ptr: Value,
            /// Compared with.
            expected: Value,
            /// Stored if equal.
            value: Value,
            /// Order.
            sem: Sem,
            /// Who must agree.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic_cas", spread Threads, result |t| t.compare_and_swap_at(*ptr, *expected, *value);
    }
}

family! {
    /// Calls of a device library's functions.
    Call {
        /// Calls a function by its C name. Result: what it returns, or `unit`. Pointers are passed as addresses of any
        /// memory.
        effect Function = "call" {
            /// C name.
            function: Arc<str>,
            /// Pointers, integers, `f32` and `f64`.
            args: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "call", spread Rule, result |t| t.call(args);
    }
}
