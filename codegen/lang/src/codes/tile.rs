//! The codes E0240 to E0259, which the verifier of the IR reports for tiles, pipelines and copies.
//! `weft-ir` declares them.

weft_ir::codes! {
    /// The codes of tiles, pipelines and copies.
    TILE Text:
    IN_FLIGHT = 240, "an accumulator is read while a product may still add to it",
        "kernel k(x: global<f32, (64, 32):(32, 1)>) block(128) { let t = shared<f32>(swizzled<f32>((64, 32))); x[_, _] = mma(t, t, accumulator<f32>((64, 64)))[_, 0..32]; }",
        "Matrix products run while the threads continue, and the accumulator has no defined value before \
         they are done. `mma_wait<0>(acc)` waits for the products that add to `acc` and returns it. Read its \
         columns only after that.";

    RELEASED_EARLY = 241, "a stage is released while a product or a copy may still read it",
        "kernel k(x: global<f16, (64, 256):(256, 1)>) block(128) { let t = shared<f16>(swizzled<f16>((64, 64, 2))); let p = pipeline(2); let mut acc = accumulator<f32>((64, 64)); for i in 0..4 { let s = producer_acquire(p); tma(t[_, _, s], flat_divide(x, (64, 64))[_, _, 0, i], p); let f = consumer_wait(p); acc = mma(t[_, _, f], t[_, _, f], acc); consumer_release(p); acc = mma_wait<0>(acc); } }",
        "A stage that is released is filled again. Matrix products and copies out of shared memory read the \
         stage while the threads continue. Release it after the `mma_wait` or `tma_wait<read>` that covers \
         them. `mma_wait<n>` covers all products but the newest n. With n = 1, a round can release the stage \
         of the preceding round.";

    UNEVEN = 242, "roles disagree about the number of stages that pass through a pipeline",
        "kernel k(x: global<f32, (32, 128):(128, 1)>) { let t = shared<f32>((32, 32):(32, 1)); let p = pipeline(1); role read(32) { for i in 0..4 { consumer_wait(p); consumer_release(p); } } role fill(32) { for i in 0..3 { producer_acquire(p); tma(t, flat_divide(x, (32, 32))[_, _, 0, i], p); } } }",
        "Every role that reads a pipeline must wait for each acquired stage once, and release it once. If \
         the loops of two roles have different numbers of rounds, or if no role fills or releases the stages, \
         one of the roles waits forever. If the compiler cannot compare the numbers, this is a warning. Only \
         one role can fill a pipeline by copies, because each role counts the stages by itself. If several \
         roles write a stage together, all of them must acquire and commit it.";

    OVERWRITTEN = 243, "shared memory is written while a copy may still read it",
        "kernel k(x: global<f32, (32, 128):(128, 1)>) block(128) { let t = shared<f32>((32, 32):(32, 1)); for i in 0..4 { t[_, _] = 1.0; sync_threads(); tma(flat_divide(x, (32, 32))[_, _, 0, i], t[_, _]); } }",
        "A copy out of shared memory reads it while the threads continue. Before the memory is written \
         again, thread 0 must wait with `tma_wait<read>(n)`, which leaves only the newest n copies in flight. \
         Then `sync_threads()` must follow, so that the other threads also wait.";

    BAD_ROLES = 244, "roles that do not fit the CTA or its registers",
        "kernel k() { role a(128, regs = 250) {} role b(128, regs = 24) {} }",
        "A role consists of whole warps. Registers are assigned to groups of 128 threads: 24 to 256 for each \
         thread, in steps of 8. The CTA starts with as many registers per thread as fit into the 65536 of a \
         multiprocessor, in steps of 8. For 384 threads these are 168. Roles can only redistribute them, so a \
         role that asks for more waits forever. Reduce `regs` of one of the roles. Roles must be the last \
         statements of a kernel.";

    STUCK = 245, "a wait for a stage that only later code of the same threads fills or releases",
        "kernel k(x: global<f32, (32, 128):(128, 1)>) { let t = shared<f32>((32, 32):(32, 1)); let p = pipeline(1); role read(32) { for i in 0..4 { consumer_wait(p); if i > 0 { consumer_release(p); } } consumer_release(p); } role fill(32) { for i in 0..4 { producer_acquire(p); tma(t, flat_divide(x, (32, 32))[_, _, 0, i], p); } } }",
        "A role that holds all stages of a pipeline waits forever for the next one, because a stage must be \
         released before it is filled again. A role that releases each stage one round late needs a pipeline \
         of at least two stages. If the same code fills and reads a pipeline, it must fill a stage before it \
         waits for it. It must also release a stage before it fills more stages than the pipeline has.";

    BAD_MAP = 246, "a tensor that no tensor map can describe",
        "kernel k(x: global<f32, (2, 2, 2, 2, 2, 4):(64, 32, 16, 8, 4, 1)>) block(32) { let t = shared<f32>((4):(1)); tma(x[0, 0, 0, 0, 0, _], t[_]); }",
        "A tensor map describes a tensor of 1 to 5 modes, without nesting. TMA cannot copy tiles of other \
         tensors. Join modes that are contiguous in memory, or index some of the modes before you pass the \
         tensor.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_numbers_are_the_irs() {
        assert_eq!(super::IN_FLIGHT, weft_ir::flight::IN_FLIGHT);
        assert_eq!(super::RELEASED_EARLY, weft_ir::reuse::RELEASED_EARLY);
        assert_eq!(super::UNEVEN, weft_ir::trips::UNEVEN);
        assert_eq!(super::OVERWRITTEN, weft_ir::reuse::OVERWRITTEN);
        assert_eq!(super::BAD_ROLES, weft_ir::roles::BAD_ROLES);
        assert_eq!(super::STUCK, weft_ir::stuck::STUCK);
        assert_eq!(super::BAD_MAP, weft_ir::tile::BAD_MAP);
    }
}
