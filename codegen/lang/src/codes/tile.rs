//! E0240 to E0259: what the verifier finds in tiles, pipelines and copies. The codes are `weft-ir`'s.

weft_ir::codes! {
    /// Codes of tiles.
    TILE Text:
    BAD_MAP = 246, "a tensor that no tensor map describes",
        "kernel k(x: global<f32, (2, 2, 2, 2, 2, 4):(64, 32, 16, 8, 4, 1)>) block(32) { let t = shared<f32>((4):(1)); tma(x[0, 0, 0, 0, 0, _], t[_]); }",
        "TMA copies tiles of tensors of 1 to 5 modes, counted without nesting. Join modes that follow each other in memory, or index some of them away before the tensor is passed.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_numbers_are_the_irs() {
        assert_eq!(super::BAD_MAP, weft_ir::tile::BAD_MAP);
    }
}
