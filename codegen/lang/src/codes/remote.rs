//! The codes E0220 to E0239, which the verifier of the IR reports for remote memory operations.
//! `weft-ir` declares them.

weft_ir::codes! {
    /// The codes of remote memory operations.
    REMOTE Text:
    NOT_SYMMETRIC = 220, "the remote side of the operation is not in the symmetric heap",
        "kernel k(dst: global<f32, (8):(1)>, src: global<f32, (8):(1)>) block(32) { put<warp>(dst, src, 1); }",
        "A put writes to, and a get reads from, the location that a symmetric tensor has on another PE. Only \
         memory of the symmetric heap (`symm<...>`) has such a location. Declare the tensor as `symm`. Pass \
         the tensor itself and not `peer(x, pe)`, because the operation finds the location.";
    OTHER_DTYPE = 221, "the two sides have different element types",
        "kernel k(dst: symm<f32, (8):(1)>, src: global<f16, (8):(1)>) block(32) { put<warp>(dst, src, 1); }",
        "Remote memory operations move bytes and convert nothing. Convert before the put, or after the get. \
         `p` converts its single value.";
    OTHER_SHAPE = 222, "the two sides have different shapes",
        "kernel k(dst: symm<f32, (8, 4):(1, 16)>, src: global<f32, (8, 2):(1, 8)>) block(32) { put<warp>(dst, src, 1); }",
        "If both sides are contiguous, the smaller one determines how many elements move. Otherwise both \
         sides must have the same number of elements, which correspond in coordinate order. An operation on \
         one element needs an element as its operand, `x[i]`. The operands of NVSHMEM's collectives and lists \
         must be contiguous.";
    BAD_SIGNAL = 223, "this is not a signal",
        "kernel k(x: symm<f32, (8):(1)>, sig: symm<u32, (1):(1)>) block(32) { put_signal<warp, set>(x, x, sig[0], 1, 1); }",
        "A signal is one u64 of the symmetric heap (NVSHMEM, Signaling Operations). Declare a parameter such \
         as `sig: symm<u64, (1):(1)>` and pass its element, `sig[0]`.";
    NOT_SAME = 224, "threads that call it together pass different arguments",
        "kernel k(x: symm<f32, (64):(1)>) block(64) { put<block>(x[thread_idx()], x[0], 1); }",
        "All threads of the warp or CTA must call such an operation with the same arguments, because the \
         operation itself distributes the elements over the threads. To use another element in each thread, \
         leave out `<warp>` or `<block>`.";
    NOBODY_SIGNALS = 230, "the kernel waits for a signal that it never sends",
        "",
        "This is a warning. The kernel waits on memory that none of its operations writes, neither on this \
         PE nor on another. It waits forever unless the host or another kernel writes that memory. If one of \
         them does, state it in the kernel's head: `signaled(sig)`.";
    SHARED_COUNTER = 231, "one counter adds up the signals of several non-blocking puts",
        "",
        "This is a warning. Non-blocking puts can complete in any order. A counter that has reached n says \
         that n of them have arrived, but not that the first n have. A wait with ge for the first chunk can \
         therefore be satisfied by another chunk. Give each chunk its own signal, or wait with eq for all of \
         them.";
    BEFORE_QUIET = 232, "memory of a non-blocking operation is used before the operation is complete",
        "kernel k(x: symm<f32, (64):(1)>, y: global<f32, (64):(1)>) block(64) { get_nbi<block>(y, x, 1); x[thread_idx()] = y[thread_idx()]; }",
        "A non-blocking get can write its destination, and a non-blocking put can read its source, at any \
         time until `quiet` (or an NVSHMEM barrier). Call `quiet` before you read the destination of the get \
         or write the source of the put.";
    UNORDERED_SIGNAL = 233, "a separate signal may overtake the put that it announces",
        "kernel k(x: symm<f32, (64):(1)>, sig: symm<u64, (1):(1)>) block(64) signaled(sig) { put<block>(x, x, 1); if thread_idx() == 0 { signal_op<set>(sig[0], 1, 1); } }",
        "When a put returns, it is complete on this side but not on the other side. A signal that follows it \
         can arrive first. Put `rma_fence()` between them, which orders operations to the same PE, or use \
         `put_signal`, which combines a put and a signal.";
}

#[cfg(test)]
mod tests {
    use weft_ir::{ordering, remote, signals};

    #[test]
    fn the_numbers_are_the_irs() {
        let pairs = [
            (super::NOT_SYMMETRIC, remote::NOT_SYMMETRIC),
            (super::OTHER_DTYPE, remote::OTHER_DTYPE),
            (super::OTHER_SHAPE, remote::OTHER_SHAPE),
            (super::BAD_SIGNAL, remote::BAD_SIGNAL),
            (super::NOT_SAME, remote::NOT_SAME),
            (super::NOBODY_SIGNALS, signals::NOBODY_SIGNALS),
            (super::SHARED_COUNTER, signals::SHARED_COUNTER),
            (super::BEFORE_QUIET, ordering::BEFORE_QUIET),
            (super::UNORDERED_SIGNAL, ordering::UNORDERED_SIGNAL),
        ];
        for (here, there) in pairs {
            assert_eq!(here, there);
        }
    }
}
