//! The codes E0200 to E0219, which the verifier of the IR reports. `weft-ir` declares them.

weft_ir::codes! {
    /// The codes of the verifier.
    VERIFY Text:
    TYPE = 200, "an operand or result has the wrong type",
        "",
        "An operation got operands of types that it does not accept together. There is no implicit \
         conversion, so write `.to<f32>()`.";
    NO_SUCH_OP = 201, "the element type does not have this operation",
        "kernel k(x: global<f32, (8):(1)>) block(8) { x[0] = x[0] % x[1]; }",
        "Some operations exist only for integers (`%`, shifts, bitwise operations) or only for floats \
         (`sqrt`, `exp`). Values of the fp8 types can only be loaded, stored and converted. Convert the \
         operands to another type first: `.to<f32>()`.";
    WRONG_SPACE = 202, "the operation cannot access this memory",
        "kernel k(x: symm<f32, (8):(1)>, team: team) block(8) { let mc = multicast(x, team); x[0] = load(mc[0]); }",
        "Only ld_reduce, st and red can access a multicast address (PTX ISA, multimem), and ld_reduce and st \
         accept no other address. Only symmetric tensors have multicast and peer addresses. For plain loads \
         and stores, use the tensor itself or `peer(x, pe)`.";
    NOT_STATIC = 203, "this must be a compile-time number of elements",
        "",
        "A thread moves a fixed number of elements at once, from 1 to 1024, because each element needs a \
         register. Partition the tensor over the threads, and loop over the steps.";
    LITERAL = 204, "the literal does not fit its type",
        "kernel k(x: global<u8, (8):(1)>) block(8) { x[0] = 300; }",
        "The number is outside the range of its type. Write a number within the range, or use a wider type.";
    UNDEFINED = 210, "a value is used before it is defined", "",
        "Only the builder API can cause this. A value must be defined before its use, in the same block or \
         in one around it.";
    MISPLACED = 211, "an instruction is in no block, or in two", "",
        "Only the builder API can cause this. Every instruction belongs to exactly one block, and a loop's \
         variable to none. Blocks nest at most 200 deep.";
    DIVERGENT = 212, "an operation that all threads must reach is in divergent control flow",
        "kernel k() block(64) { if thread_idx() < 32 { sync_threads(); } }",
        "Barriers, reductions over a block or warp, and shuffles wait for every thread of their group. If a \
         condition differs between threads, some threads never reach the operation, and the others wait \
         forever. Move the operation out of the condition, or make the condition the same for all threads.";
    BAD_ORDER = 213, "the operation does not have this memory order",
        "kernel k(x: global<u32, (8):(1)>) block(8) { store<acquire, gpu>(x[0], 1); }",
        "Loads are weak, relaxed or acquire. Stores are weak, relaxed or release. Reductions are relaxed or \
         release. Fences are acquire, release, acq_rel or sc (PTX ISA, Memory Consistency Model). Choose an \
         order that the operation has, or add a fence.";
    BAD_LAUNCH = 214, "no GPU has this launch shape",
        "kernel k() block(64, 32) { }",
        "A CTA has 1 to 1024 threads in total, and at most 64 of them in z. No GPU can launch a larger one. \
         Use a smaller block and a larger grid.";
    NO_TEAM = 215, "this is not a team", "",
        "Only the builder API can cause this. A team is named by the number of a parameter of type team.";
    BAD_FORMAT = 216, "the format does not fit its arguments",
        "kernel k() block(32) { print(\"%d %d\", thread_idx()); }",
        "A format needs exactly one conversion for each argument: %d for signed integers, %u or %x for \
         unsigned integers, and %f, %e or %g for floats. Add or remove conversions or arguments until they \
         match.";
    BAD_PASS = 217, "a parameter cannot be passed", "",
        "A kernel takes numbers, tensors, barriers and teams, up to 4096 bytes in total. Pass larger data \
         as a tensor.";
    BAD_FUNCTION = 218, "a called function has no C name, or two signatures", "",
        "Only the builder API and the passes can cause this. A call names a C function and not a kernel, \
         and passes the same types to it everywhere.";
}

#[cfg(test)]
mod tests {
    use weft_ir::{abi, typing, verify};

    #[test]
    fn the_numbers_are_the_irs() {
        let pairs = [
            (super::TYPE, typing::MISMATCH),
            (super::NO_SUCH_OP, typing::NO_SUCH_OP),
            (super::WRONG_SPACE, typing::WRONG_SPACE),
            (super::NOT_STATIC, typing::NOT_STATIC),
            (super::LITERAL, typing::LITERAL),
            (super::UNDEFINED, verify::UNDEFINED),
            (super::MISPLACED, verify::MISPLACED),
            (super::DIVERGENT, verify::DIVERGENT),
            (super::BAD_ORDER, verify::BAD_ORDER),
            (super::BAD_LAUNCH, verify::BAD_LAUNCH),
            (super::NO_TEAM, verify::NO_TEAM),
            (super::BAD_FORMAT, verify::BAD_FORMAT),
            (super::BAD_PASS, abi::BAD_PARAM),
            (super::BAD_FUNCTION, verify::BAD_FUNCTION),
        ];
        for (here, there) in pairs {
            assert_eq!(here, there);
        }
    }
}
