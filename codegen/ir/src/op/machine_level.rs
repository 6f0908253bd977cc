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
        /// Computes the address `bytes` bytes further on. Result: a pointer to the same space.
        pure PtrAdd = "ptr_add" {
            /// The pointer.
            ptr: Value,
            /// The signed offset in bytes (`i64`).
            bytes: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.ptr_add(*ptr, *bytes);
        /// Maps an address to the same place in the shared memory of another CTA of the cluster
        /// (PTX ISA, mapa).
        pure InCta = "map_to_cta" {
            /// The address in shared memory.
            ptr: Value,
            /// The rank of the CTA in the cluster (`i32`).
            cta: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.map_to_cta(*ptr, *cta);
        /// Makes an address from an `i64`.
        pure FromInt = "int_to_ptr" {
            /// The address in bytes, as an `i64`.
            a: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.int_to_ptr(*a);
        /// Converts an address to an `i64`.
        pure ToInt = "ptr_to_int" {
            /// The address that is converted.
            a: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.ptr_to_int(*a);
        /// Allocates memory that all threads of the CTA share for the whole kernel, uninitialised.
        /// Result: its address.
        pure Shared = "shared" {
            /// The name in the source text, which can be empty.
            name: Arc<str>,
            /// The size in bytes.
            bytes: u64,
            /// The alignment of the first byte, a power of two.
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
            /// The address of the first element. It is aligned to the access.
            ptr: Value,
            /// The memory order: `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "load", spread of_read(*sem), result |t| t.read_at(*ptr, false);
        /// Writes a value.
        effect Store = "st" {
            /// The address of the first element. It is aligned to the access.
            ptr: Value,
            /// The value that is written.
            value: Value,
            /// The memory order: `weak`, `relaxed` or `release`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(ptr)], order Some((*sem, STORES)), group None,
        teams [], name "store", spread Operands, result |t| t.write_at(*ptr, *value, false);
        /// `multimem.ld_reduce`: the reduction over the team of every PE's value (PTX ISA, multimem).
        effect LdReduce = "multimem_ld_reduce" {
            /// The address in multicast space.
            ptr: Value,
            /// The reduction operation.
            op: RedOp,
            /// The type in which the switch accumulates: the element type or a wider one.
            acc: Scalar,
            /// The memory order: `weak`, `relaxed` or `acquire`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order Some((*sem, LOADS)), group None,
        teams [], name "ld_reduce", spread of_read(*sem), result |t| t.ld_reduce_at(*ptr, *op, *acc);
        /// `multimem.st`: writes the value to every PE of the team.
        effect McStore = "multimem_st" {
            /// The address in multicast space.
            ptr: Value,
            /// The value that is written.
            value: Value,
            /// The memory order: `weak`, `relaxed` or `release`.
            sem: Sem,
            /// The scope of a strong access.
            scope: Scope,
        }
        reads [], writes [here(ptr)], order Some((*sem, STORES)), group None,
        teams [], name "st", spread Operands, result |t| t.write_at(*ptr, *value, true);
        /// `multimem.red`: reduces the value into every PE's element atomically.
        effect McRed = "multimem_red" {
            /// The address in multicast space.
            ptr: Value,
            /// The operand of the reduction, with one lane for each element.
            value: Value,
            /// The reduction operation.
            op: RedOp,
            /// The memory order: `relaxed` or `release`.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_at(*ptr, *value, Some(*op), true).and_then(|_| t.unit());
        /// Atomic read-modify-write of each lane that does not return the old value.
        effect Red = "atom_red" {
            /// The address of the first lane's element.
            ptr: Value,
            /// The operand of the reduction, with one lane for each element.
            value: Value,
            /// The reduction operation.
            op: RedOp,
            /// The memory order: `relaxed` or `release`.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, REDUCTIONS)), group None,
        teams [], name "red", spread Operands, result |t| t.reduce_at(*ptr, *value, Some(*op), false).and_then(|_| t.unit());
        /// Atomic read-modify-write of one element. Result: the old value.
        effect Atomic = "atom" {
            /// The address of the element.
            ptr: Value,
            /// The operand of `op`, or the new value of an exchange.
            value: Value,
            /// The reduction operation. Without one, the value is exchanged.
            op: Option<RedOp>,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic", spread Threads, result |t| t.reduce_at(*ptr, *value, *op, false);
        /// Atomic compare and swap of one element. Result: the old value.
        effect AtomicCas = "atom_cas" {
            /// The address of the element.
            ptr: Value,
            /// The value that the old value is compared with.
            expected: Value,
            /// The value that is stored if they are equal.
            value: Value,
            /// The memory order.
            sem: Sem,
            /// The scope within which the order holds.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order Some((*sem, ATOMICS)), group None,
        teams [], name "atomic_cas", spread Threads, result |t| t.compare_and_swap_at(*ptr, *expected, *value);
    }
}

family! {
    /// Asynchronous copies of tiles (TMA), and the barriers in shared memory that signal their
    /// completion. One thread issues a copy. (PTX ISA, Asynchronous Operations and mbarrier.)
    Async {
        /// Initialises a barrier whose phase ends after `count` arrivals and after all bytes that
        /// are expected.
        effect MbarInit = "mbar_init" {
            /// The address of the barrier's 8 bytes in shared memory.
            ptr: Value,
            /// The number of arrivals that end a phase.
            count: u32,
        }
        reads [], writes [here(ptr)], order None, group None,
        teams [], name "pipeline", spread Operands, result |t| t.mbarrier(*ptr);
        /// Makes the initialisation of barriers visible to the threads of the CTA and to the copies
        /// into its memory.
        effect MbarFence = "mbar_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "pipeline", spread Operands, result |t| t.unit();
        /// Arrives at a barrier of this CTA or of another CTA of the cluster. Threads that wait for
        /// the phase see the thread's earlier accesses.
        effect MbarArrive = "mbar_arrive" {
            /// The barrier.
            ptr: Value,
            /// The scope of the threads that see the thread's earlier accesses: the CTA or the cluster.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order None, group None,
        teams [], name "consumer_release", spread Operands, result |t| t.mbar_arrive(*ptr);
        /// Arrives at a barrier, and adds a number of bytes that copies will write in this phase.
        effect MbarExpect = "mbar_expect" {
            /// The barrier.
            ptr: Value,
            /// The number of bytes that the copies of this phase write.
            bytes: u32,
        }
        reads [here(ptr)], writes [here(ptr)], order None, group None,
        teams [], name "producer_acquire", spread Operands, result |t| t.mbarrier(*ptr);
        /// Returns whether the phase of the given parity has ended, and waits for it for a limited
        /// time. If it has, the earlier accesses of the threads that arrived are visible.
        effect MbarTest = "mbar_test" {
            /// The barrier.
            ptr: Value,
            /// The parity of the phase (`i32`, 0 or 1).
            parity: Value,
            /// The scope of the threads whose earlier accesses become visible: the CTA or the cluster.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order None, group None,
        teams [], name "consumer_wait", spread Threads, result |t| t.mbar_test(*ptr, *parity);
        /// Makes a tensor map in memory, which the host wrote before the launch, usable by copies
        /// that the thread begins later (PTX ISA, fence.proxy.tensormap).
        effect MapFence = "map_fence" {
            /// The address of the tensor map.
            map: Value,
        }
        reads [here(map)], writes [], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.map_fence(*map);
        /// Begins to copy a box of a tensor to shared memory. Its bytes arrive at a barrier.
        effect TmaLoad = "tma_ld" {
            /// The destination of the box: an address in shared memory.
            dst: Value,
            /// The address of the tensor map.
            map: Value,
            /// The coordinates of the box's first element (`i32`), dimension 0 first.
            at: Vec<Value>,
            /// The barrier.
            mbar: Value,
            /// The ranks of the CTAs of the cluster that get the box, as a bit mask (`i32`). Each
            /// CTA gets it at the same offset, and its own barrier at the offset of `mbar` is
            /// signalled. Without a mask only this CTA gets the box.
            ctas: Option<Value>,
        }
        reads [here(map)], writes [here(dst)], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.tma_box(*dst, *map, at, Some(*mbar));
        /// Begins to copy a box from shared memory into a tensor, or to reduce it into the tensor.
        effect TmaStore = "tma_st" {
            /// The source of the box: an address in shared memory.
            src: Value,
            /// The address of the tensor map.
            map: Value,
            /// The coordinates of the box's first element (`i32`), dimension 0 first.
            at: Vec<Value>,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
        }
        reads [here(src)], writes [here(map)], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.tma_box(*src, *map, at, None);
        /// Begins to copy bytes of global memory to shared memory. The bytes arrive at a barrier.
        effect BulkLoad = "bulk_ld" {
            /// The destination: an address in shared memory.
            dst: Value,
            /// The source: an address in global memory.
            src: Value,
            /// The number of bytes.
            bytes: u32,
            /// The barrier.
            mbar: Value,
            /// The CTAs that get the bytes, as in `TmaLoad`.
            ctas: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group None,
        teams [], name "bulk", spread Operands, result |t| t.bulk_bytes(*dst, *src, *mbar);
        /// Begins to copy or reduce bytes of shared memory into global or multicast memory, or into
        /// the shared memory of another CTA, where they arrive at a barrier.
        effect BulkStore = "bulk_st" {
            /// The destination address.
            dst: Value,
            /// The source: an address in shared memory.
            src: Value,
            /// The number of bytes.
            bytes: u32,
            /// The type of the elements that are reduced.
            elem: Scalar,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
            /// The barrier in the shared memory of the other CTA.
            mbar: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group None,
        teams [], name "bulk", spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.bulk_bytes(*src, *dst, mbar.unwrap_or(*src)));
        /// Makes a group of the copies out of shared memory that the thread began since the
        /// previous group.
        effect BulkCommit = "bulk_commit" {
        }
        reads [], writes [], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.unit();
        /// Waits until all but the newest groups of the thread's copies have read their source, or
        /// are complete.
        effect BulkWait = "bulk_wait" {
            /// The number of groups that may still be in flight.
            pending: u32,
            /// Whether it is enough that the copies have read their source.
            read: bool,
        }
        reads [], writes [], order None, group None,
        teams [], name "tma_wait", spread Operands, result |t| t.unit();
        /// Orders accesses to shared or global memory before copies and matrix products that begin
        /// later. It covers the thread's own accesses and those that the thread has observed.
        effect ProxyFence = "proxy_fence" {
            /// Whether the accesses are to global instead of shared memory.
            global: bool,
        }
        reads [], writes [], order None, group None,
        teams [], name "fence<async>", spread Operands, result |t| t.unit();
        /// The address of an object in shared memory as a number (`u32`), computed at this point of
        /// the code. Values that follow from it can then be computed once per warp. If the address
        /// were in a register of each thread, all these values would be computed by each thread.
        effect SharedAddress = "shared_address" {
            /// The address in shared memory.
            ptr: Value,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.shared_address(*ptr);
        /// Orders the warpgroup's accesses to registers before matrix instructions that begin
        /// later.
        effect WgmmaFence = "wgmma_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.unit();
        /// Registers of an accumulator that have not been written. A product that does not add to
        /// them gives them values. Result: the given type.
        effect WgmmaUnset = "wgmma_unset" {
        }
        reads [], writes [], order None, group None,
        teams [], name "accumulator", spread Threads, result |t| t.unset();
        /// Registers of an accumulator that are zero. Result: the given type. They are written at
        /// this point of the code, and only if it is executed.
        effect WgmmaZero = "wgmma_zero" {
        }
        reads [], writes [], order None, group None,
        teams [], name "accumulator", spread Threads, result |t| t.unset();
        /// Orders the warpgroup's accesses to registers before matrix instructions that will read
        /// these registers. Result: the registers.
        effect WgmmaRegisters = "wgmma_registers" {
            /// The registers of 32 bits.
            a: Value,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.operands(*a);
        /// Begins a matrix product of a warpgroup: 64 rows of `n` columns, 32 bytes along K.
        /// Result: `acc`, which is in flight.
        effect Wgmma = "wgmma" {
            /// The registers of the thread's accumulators.
            acc: Value,
            /// The first register to which the product is added.
            first: u32,
            /// The matrix descriptor of A (`i64`), or the lane's four registers of A.
            a: Value,
            /// The matrix descriptor of B (`i64`).
            b: Value,
            /// The number of columns.
            n: u32,
            /// The element type of A. `f32` is multiplied as tf32.
            a_elem: Scalar,
            /// The element type of B.
            b_elem: Scalar,
            /// The type of the sums. A register holds two sums of type `f16`, or one of another type.
            sum: Scalar,
            /// Whether A is contiguous along M.
            a_mn: bool,
            /// Whether B is contiguous along N.
            b_mn: bool,
            /// Whether the product is added to the registers (`bool`); it is if this is absent. If
            /// it is false, the product replaces the registers and does not read them.
            adds: Option<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.wgmma((*acc, *sum), *first, [*a, *b], *n, *adds);
        /// A warp loads matrices of eight rows of 16 bytes. Each group of eight lanes gives the row
        /// addresses of one matrix. Result: a register of 32 bits for each matrix, from row `lane /
        /// 4`, or from that column if the matrix is transposed as elements of 16 bits.
        effect LdMatrix = "ldmatrix" {
            /// The address of the lane's row in shared memory.
            ptr: Value,
            /// The number of matrices: 1, 2 or 4.
            count: u32,
            /// Whether the matrices are transposed.
            trans: bool,
        }
        reads [here(ptr)], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.ldmatrix(*ptr, *count);
        /// A warp stores matrices of eight rows of 16 bytes. Each group of eight lanes gives the
        /// row addresses of one matrix.
        effect StMatrix = "stmatrix" {
            /// The address of the lane's row in shared memory.
            ptr: Value,
            /// Registers of 32 bits, one for each of 1, 2 or 4 matrices: two elements of row `lane
            /// / 4`, or of that column if the matrices are transposed.
            value: Value,
            /// Whether the matrices are transposed.
            trans: bool,
        }
        reads [], writes [here(ptr)], order None, group None,
        teams [], name "st", spread Operands, result |t| t.stmatrix(*ptr, *value);
        /// A matrix product of a warp: 16 rows, 8 columns, 32 bytes along K. Result: `acc` with the
        /// product added.
        effect MmaSync = "mma_sync" {
            /// The lane's four registers of A.
            a: Value,
            /// The lane's two registers of B.
            b: Value,
            /// The registers of the lane's four elements of the accumulator.
            acc: Value,
            /// The element type of A. `f32` is multiplied as tf32.
            a_elem: Scalar,
            /// The element type of B.
            b_elem: Scalar,
            /// The type of the sums. A register holds two sums of type `f16`, or one of another type.
            sum: Scalar,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.mma_sync([*a, *b], (*acc, *sum));
        /// Makes a group of the matrix products that began since the previous group.
        effect WgmmaCommit = "wgmma_commit" {
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.unit();
        /// Waits until all but the newest groups of products are complete. Result: the
        /// accumulators.
        effect WgmmaWait = "wgmma_wait" {
            /// The registers of the thread's accumulators.
            acc: Value,
            /// The number of groups that may still be in flight.
            pending: u32,
            /// The registers that the products read. Nothing writes them before the products are complete.
            held: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma_wait", spread Threads, result |t| t.wgmma_wait(*acc, held);
    }
}

family! {
    /// Calls of functions of a device library.
    Call {
        /// Calls a function by its C name. Result: the function's result, or `unit`. Pointers are
        /// passed as generic addresses.
        effect Function = "call" {
            /// The name of the function in C.
            function: Arc<str>,
            /// The arguments: pointers, integers, `f32` and `f64`.
            args: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "call", spread Rule, result |t| t.call(args);
    }
}
