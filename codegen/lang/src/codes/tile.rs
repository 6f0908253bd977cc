//! E0240 to E0259: what the verifier finds in tiles, pipelines and copies. The codes are `weft-ir`'s.

weft_ir::codes! {
    /// Codes of tiles.
    TILE Text:
    IN_FLIGHT = 240, "an accumulator is read while a product may still add to it",
        "kernel k(x: global<f32, (64, 32):(32, 1)>) block(128) { let t = shared<f32>(swizzled<f32>((64, 32))); x[_, _] = mma(t, t, accumulator<f32>((64, 64)))[_, 0..32]; }",
        "Matrix products run while the code goes on. `mma_wait<0>(acc)` waits for those that add to `acc` and gives it back; only then can its columns be read.";

    BAD_ROLES = 244, "roles that do not fit the CTA or its registers",
        "kernel k() { role a(128, regs = 250) {} role b(128, regs = 24) {} }",
        "A role has whole warps. Registers are given to 128 threads as a whole: 24 to 256 each, in steps of 8, and together no more than the 65536 of a multiprocessor. Roles are the last statements of a kernel.";

    BAD_MAP = 246, "a tensor that no tensor map describes",
        "kernel k(x: global<f32, (2, 2, 2, 2, 2, 4):(64, 32, 16, 8, 4, 1)>) block(32) { let t = shared<f32>((4):(1)); tma(x[0, 0, 0, 0, 0, _], t[_]); }",
        "TMA copies tiles of tensors of 1 to 5 modes, counted without nesting. Join modes that follow each other in memory, or index some of them away before the tensor is passed.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_numbers_are_the_irs() {
        assert_eq!(super::IN_FLIGHT, weft_ir::flight::IN_FLIGHT);
        assert_eq!(super::BAD_ROLES, weft_ir::roles::BAD_ROLES);
        assert_eq!(super::BAD_MAP, weft_ir::tile::BAD_MAP);
    }
}
