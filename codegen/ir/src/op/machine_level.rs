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
        /// The same address in the shared memory of another CTA of the cluster (PTX ISA, mapa).
        pure InCta = "map_to_cta" {
            /// Address in shared memory.
            ptr: Value,
            /// Rank of the CTA in the cluster (`i32`).
            cta: Value,
        }
        teams [], name "an address", spread Operands, result |t| t.map_to_cta(*ptr, *cta);
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
    /// Asynchronous copies of tiles (TMA), and the barriers in shared memory by which they are waited for. One thread
    /// issues a copy. (PTX ISA, Asynchronous Operations and mbarrier.)
    Async {
        /// Makes a barrier whose phase ends after that many arrivals and all the bytes that are expected.
        effect MbarInit = "mbar_init" {
            /// Address of 8 bytes in shared memory.
            ptr: Value,
            /// Arrivals a phase.
            count: u32,
        }
        reads [], writes [here(ptr)], order None, group None,
        teams [], name "pipeline", spread Operands, result |t| t.mbarrier(*ptr);
        /// Lets the threads of the CTA and the copies into its memory see the barriers that were made before.
        effect MbarFence = "mbar_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "pipeline", spread Operands, result |t| t.unit();
        /// Arrives at a barrier, this CTA's or another's of the cluster; what the thread did before is seen by those that wait for the phase.
        effect MbarArrive = "mbar_arrive" {
            /// The barrier.
            ptr: Value,
            /// Where those are that see what the thread did before: in the CTA or in the cluster.
            scope: Scope,
        }
        reads [here(ptr)], writes [here(ptr)], order None, group None,
        teams [], name "consumer_release", spread Operands, result |t| t.mbar_arrive(*ptr);
        /// Arrives at a barrier, of whose phase copies will write that many bytes.
        effect MbarExpect = "mbar_expect" {
            /// The barrier.
            ptr: Value,
            /// Bytes of the copies that name the barrier.
            bytes: u32,
        }
        reads [here(ptr)], writes [here(ptr)], order None, group None,
        teams [], name "producer_acquire", spread Operands, result |t| t.mbarrier(*ptr);
        /// Whether the phase of that parity has ended; waits for it a while. What those did that arrived is seen then.
        effect MbarTest = "mbar_test" {
            /// The barrier.
            ptr: Value,
            /// Parity of the phase (`i32`, 0 or 1).
            parity: Value,
            /// Where those are that arrived: in the CTA or in the cluster.
            scope: Scope,
        }
        reads [here(ptr)], writes [], order None, group None,
        teams [], name "consumer_wait", spread Threads, result |t| t.mbar_test(*ptr, *parity);
        /// Lets copies that the thread begins later use a tensor map in memory, which the host wrote before the launch
        /// (PTX ISA, fence.proxy.tensormap).
        effect MapFence = "map_fence" {
            /// Address of the tensor map.
            map: Value,
        }
        reads [here(map)], writes [], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.map_fence(*map);
        /// Begins to copy a box of a tensor to shared memory. Its bytes arrive at a barrier.
        effect TmaLoad = "tma_ld" {
            /// Where the box goes: an address in shared memory.
            dst: Value,
            /// Address of the tensor map.
            map: Value,
            /// Coordinates of the box's first element (`i32`), dimension 0 first.
            at: Vec<Value>,
            /// The barrier.
            mbar: Value,
            /// Ranks of the CTAs of the cluster, as bits (`i32`), that get the box, each at this place and with its own
            /// barrier at the place of this one; none for this CTA alone.
            ctas: Option<Value>,
        }
        reads [here(map)], writes [here(dst)], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.tma_box(*dst, *map, at, Some(*mbar));
        /// Begins to copy a box from shared memory into a tensor, or to reduce it into the tensor.
        effect TmaStore = "tma_st" {
            /// Where the box is: an address in shared memory.
            src: Value,
            /// Address of the tensor map.
            map: Value,
            /// Coordinates of the box's first element (`i32`), dimension 0 first.
            at: Vec<Value>,
            /// Reduction; none overwrites.
            op: Option<RedOp>,
        }
        reads [here(src)], writes [here(map)], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.tma_box(*src, *map, at, None);
        /// Begins to copy bytes of global memory to shared memory. They arrive at a barrier.
        effect BulkLoad = "bulk_ld" {
            /// Where they go: an address in shared memory.
            dst: Value,
            /// Where they are: an address in global memory.
            src: Value,
            /// Bytes.
            bytes: u32,
            /// The barrier.
            mbar: Value,
            /// The CTAs that get them, as those that get a box.
            ctas: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group None,
        teams [], name "bulk", spread Operands, result |t| t.bulk_bytes(*dst, *src, *mbar);
        /// Begins to copy bytes of shared memory to global or multicast memory, or to the shared memory of another CTA,
        /// where they arrive at a barrier; or to reduce them into that memory.
        effect BulkStore = "bulk_st" {
            /// Where they go.
            dst: Value,
            /// Where they are: an address in shared memory.
            src: Value,
            /// Bytes.
            bytes: u32,
            /// Type of the elements that are reduced.
            elem: Scalar,
            /// Reduction; none overwrites.
            op: Option<RedOp>,
            /// The barrier, in the shared memory of the other CTA.
            mbar: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group None,
        teams [], name "bulk", spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.bulk_bytes(*src, *dst, mbar.unwrap_or(*src)));
        /// Makes a group of the copies out of shared memory that the thread began since the last one.
        effect BulkCommit = "bulk_commit" {
        }
        reads [], writes [], order None, group None,
        teams [], name "tma", spread Operands, result |t| t.unit();
        /// Waits until all but the newest groups of the thread's copies have read their source, or are done.
        effect BulkWait = "bulk_wait" {
            /// Groups that may be under way.
            pending: u32,
            /// Whether it is enough that they have read.
            read: bool,
        }
        reads [], writes [], order None, group None,
        teams [], name "tma_wait", spread Operands, result |t| t.unit();
        /// Orders the thread's accesses to shared or global memory, and those that it knows of, before copies and matrix
        /// products that begin later.
        effect ProxyFence = "proxy_fence" {
            /// Whether to global memory.
            global: bool,
        }
        reads [], writes [], order None, group None,
        teams [], name "fence<async>", spread Operands, result |t| t.unit();
        /// The address of a place in shared memory as a number (`u32`), computed where this stands. What follows from it
        /// may then be computed once for a warp; an address that a register of each thread holds makes all of it values
        /// of each thread.
        effect SharedAddress = "shared_address" {
            /// An address in shared memory.
            ptr: Value,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.shared_address(*ptr);
        /// Orders what the warpgroup did to registers before matrix instructions that begin later.
        effect WgmmaFence = "wgmma_fence" {
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.unit();
        /// Registers of an accumulator that nobody has written: a product that does not add to them gives them values.
        /// Result: the given type.
        effect WgmmaUnset = "wgmma_unset" {
        }
        reads [], writes [], order None, group None,
        teams [], name "accumulator", spread Threads, result |t| t.unset();
        /// Registers of an accumulator that are zero. Result: the given type. They are written where this stands, and so
        /// only if the code here runs.
        effect WgmmaZero = "wgmma_zero" {
        }
        reads [], writes [], order None, group None,
        teams [], name "accumulator", spread Threads, result |t| t.unset();
        /// Orders what the warpgroup did to registers, of which matrix instructions will read these. Result: the registers.
        effect WgmmaRegisters = "wgmma_registers" {
            /// Registers of 32 bits.
            a: Value,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.operands(*a);
        /// Begins a matrix product of a warpgroup: 64 rows of `n` columns, 32 bytes along K. Result: `acc`, in flight.
        effect Wgmma = "wgmma" {
            /// Registers of the accumulators of the thread.
            acc: Value,
            /// The first of those that it adds to.
            first: u32,
            /// Matrix descriptor of A (`i64`), or the lane's four registers of it.
            a: Value,
            /// Matrix descriptor of B (`i64`).
            b: Value,
            /// Columns.
            n: u32,
            /// Element type of A; `f32` is multiplied as tf32.
            a_elem: Scalar,
            /// Element type of B.
            b_elem: Scalar,
            /// Type of the sums. A register holds two of `f16`, and else one.
            sum: Scalar,
            /// Whether A is contiguous along M.
            a_mn: bool,
            /// Whether B is contiguous along N.
            b_mn: bool,
            /// Whether it adds to what the registers hold (`bool`); it does where nothing is given. It replaces what they
            /// hold where this is false, and then does not read them.
            adds: Option<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.wgmma((*acc, *sum), *first, [*a, *b], *n, *adds);
        /// A warp loads matrices of eight rows of 16 bytes, of which each eight lanes give the addresses of one. Result: a
        /// register of 32 bits for each, of row `lane / 4` or, transposed as elements of 16 bits, of that column.
        effect LdMatrix = "ldmatrix" {
            /// The lane's row: an address in shared memory.
            ptr: Value,
            /// Matrices: 1, 2 or 4.
            count: u32,
            /// Whether they are transposed.
            trans: bool,
        }
        reads [here(ptr)], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.ldmatrix(*ptr, *count);
        /// A warp stores matrices of eight rows of 16 bytes, of which each eight lanes give the addresses of one.
        effect StMatrix = "stmatrix" {
            /// The lane's row: an address in shared memory.
            ptr: Value,
            /// Registers of 32 bits, one for each of 1, 2 or 4 matrices: two elements of row `lane / 4` or, if they are
            /// transposed, of that column.
            value: Value,
            /// Whether they are transposed.
            trans: bool,
        }
        reads [], writes [here(ptr)], order None, group None,
        teams [], name "st", spread Operands, result |t| t.stmatrix(*ptr, *value);
        /// A matrix product of a warp: 16 rows, 8 columns, 32 bytes along K. Result: `acc` with the product added.
        effect MmaSync = "mma_sync" {
            /// The lane's four registers of A.
            a: Value,
            /// Its two registers of B.
            b: Value,
            /// The registers of its four elements of the accumulator.
            acc: Value,
            /// Element type of A; `f32` is multiplied as tf32.
            a_elem: Scalar,
            /// Element type of B.
            b_elem: Scalar,
            /// Type of the sums. A register holds two of `f16`, and else one.
            sum: Scalar,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Threads, result |t| t.mma_sync([*a, *b], (*acc, *sum));
        /// Makes a group of the matrix products that began since the last one.
        effect WgmmaCommit = "wgmma_commit" {
        }
        reads [], writes [], order None, group None,
        teams [], name "mma", spread Operands, result |t| t.unit();
        /// Waits until all but the newest groups of products are done. Result: the accumulators.
        effect WgmmaWait = "wgmma_wait" {
            /// Registers of the accumulators of the thread.
            acc: Value,
            /// Groups that may be under way.
            pending: u32,
            /// Registers that the products read, which nobody writes before.
            held: Vec<Value>,
        }
        reads [], writes [], order None, group None,
        teams [], name "mma_wait", spread Threads, result |t| t.wgmma_wait(*acc, held);
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
