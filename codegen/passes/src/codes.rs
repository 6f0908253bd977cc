//! The codes E0400 to E0449, which the passes report. (Forms of instructions that do not exist have
//! codes of their own, from the tables of `weft-isa`.)

weft_ir::codes! {
    /// The codes of the passes, in ascending order.
    PASSES Words:

    NO_SUCH_PASS = 400, "there is no pass with that name", "`--emit after:lower`",
    "Only the passes that `weft compile --help` lists can be selected. Correct the name.";

    NO_VALUE = 401, "an index that has no value", "a view that starts at element 2^62 of a tensor of f32",
    "The offset or extent cannot be computed. Either its value exceeds 64 bits (for an address, after it is \
     multiplied by the size of an element), or it divides by zero, or its expression has more than 512 terms. \
     Bind some of its variables to constants, or make the tile smaller.";

    NO_ADDRESS = 402, "a tensor without an address",
    "an access to a tensor that is neither a parameter's, a view of one, nor shared memory",
    "Only parameters, shared memory and views of them have addresses, so only they can be loaded and stored. \
     Values in registers have no address. Use them directly.";

    NOT_STATIC = 403, "an access whose shape is known at run time only",
    "a load of a tensor of shape (4, n) with n a kernel argument",
    "The number of elements that one access moves must be a constant in each mode, because each element \
     needs a register. Tile the mode and loop over the tiles.";

    BAD_BOUND = 404, "a bound that does not fit its tensor", "a view (4):(1) with a bound over (8):(1)",
    "A bound maps each coordinate of the view to a position in the mode that the tile exceeds. The view and \
     the bound must therefore have the same number of elements. Give both the same shape.";

    BARRIER_ORIGIN = 405, "barrier counters that are not a parameter", "a team barrier on a value that is selected at run time",
    "The launcher supplies the address of the counters on every PE, but only for a `barrier` parameter. Pass \
     the parameter itself.";

    NO_ACCUMULATOR = 406, "an accumulator that the switch does not have",
    "`ld_reduce<add, acc = f64>` of f32",
    "The switch accumulates in the element's own type. It can also accumulate f16 and bf16 in f32, and fp8 \
     in f16. Leave out `acc`, choose one of these types, or use `--lowering unicast`, which accumulates in \
     any wider float type.";

    NO_REDUCTION = 407, "a reduction that memory does not have", "`red<mul>` on f32",
    "No memory operation multiplies. Products exist only among threads (`prod<block>`) and in registers. \
     Reduce by add, min, max, and, or or xor. For a product, load both values, multiply them, and store the \
     result.";

    OTHER_SHAPES = 408, "the sides of a transfer have no common pieces", "a put of a (4,3):(1,8) to a \
         (3,4):(1,8)",
    "A transfer pairs the elements of both sides in coordinate order, and moves the largest pieces that are \
     consecutive on both sides. This requires shapes with a common refinement that is known at compile time. \
     Give both views the same shape. If both sides are contiguous, they can differ in size, and the smaller \
     one determines how many elements move.";

    NEEDS_LIBRARY = 409, "an operation that needs NVSHMEM", "`barrier_all<block>()` with `--transport p2p`",
    "NVSHMEM's collectives synchronise through NVSHMEM's own memory, and only NVSHMEM knows the ranks of \
     teams, so these operations need its functions. Compile with `--transport auto` or `nvshmem`. \
     Alternatively, synchronise with a `barrier` parameter and use the tile collectives of `weft::tile`.";

    NO_FUNCTION = 410, "NVSHMEM has no function for the type", "`reduce<block, and>` of f32",
    "Each of NVSHMEM's typed functions exists for certain types: waits for integers of 16 to 64 bits, \
     atomics for 32 and 64 bits, and bitwise reductions for integers. Convert the values, or view the tensor \
     as another type.";

    UNARMED = 430, "no acquire of its pipeline covers a copy",
    "a `tma` that names a pipeline, in a branch or loop without `producer_acquire`",
    "An acquire makes its stage expect the bytes of all copies that follow it in the same block, up to the \
     next acquire of the pipeline. A copy in another block could be skipped in some rounds, and the stage \
     would never be full. Put the copies of a stage directly after its acquire.";

    BAD_BOX = 431, "a tile that TMA cannot copy", "a `tma` of rows of 6 bytes",
    "TMA copies boxes of at most 256 elements per dimension. In shared memory, a box must be dense, and its \
     rows must be multiples of 16 bytes. The rows of a swizzled tile must be as long as the swizzle is wide. \
     The first mode of the tensor must have stride 1. The message says which property the tile lacks. \
     `swizzled<T>(shape)` makes a suitable layout.";

    BAD_OPERAND = 432, "a tile that matrix instructions cannot read", "an `mma` of a plain row-major tile",
    "Matrix instructions read tiles of eight rows by 16 bytes (core matrices), which a swizzle of 32, 64 or \
     128 bytes puts side by side. Elements must be contiguous along K, or, for types of 16 bits, along M or \
     N. The message says which property the tile lacks. `swizzled<T>(shape)` makes a suitable layout.";

    BAD_RUN = 433, "bytes that no bulk copy can move", "a `bulk` of a tile of a wider row-major matrix",
    "A bulk copy moves consecutive bytes. Their number and both addresses must be multiples of 16. The \
     elements of both sides must be contiguous in memory in the same order. A tensor of one mode receives the \
     bytes of a tile in shared memory, even of a swizzled one, in the order in which they lie there.";

    UNWAITED = 439, "no wait follows a product that reads registers",
    "`mma` of an accumulator's columns, with `mma_wait<0>` after the loop around it",
    "A product in flight reads the registers of its first factor, so nothing can write them before it is \
     done. Put `mma_wait<0>` of its accumulator into the same block, after the product.";
}

weft_ir::codes! {
    /// The codes of the tables of `weft-isa`, one for each column, in ascending order.
    ISA Words:

    NO_OP = 701, "the instruction does not have this reduction", "`ld_reduce<min>` of f32",
    "Not every reduction exists for every element type. The switch adds every type, but it finds the \
     minimum and maximum only of integers and of 16-bit and 8-bit floats (docs/multimem.md). The message \
     lists what is legal instead. `--lowering unicast` reduces any type.";

    NO_TYPE = 702, "the instruction does not have this element type", "`ld_reduce<add>` of i16",
    "The switch supports 32-bit and 64-bit integers, f16, bf16, f32, f64 and, on some targets, fp8. Convert \
     to one of these types, or use `--lowering unicast`.";

    NO_WIDTH = 703, "the instruction does not have this vector width", "a single f16 through `ld_reduce`",
    "One access moves 4, 8 or 16 bytes. It moves 16-bit and 8-bit floats only as vectors. Access several \
     consecutive elements at once.";

    NO_ACC = 704, "the instruction does not have this accumulator", "`ld_reduce<max, acc = f32>` of f16",
    "Sums of f16 and bf16 can be accumulated in f32, and sums of fp8 in f16. Other operations and types have \
     no accumulator. Leave out `acc`, or use `--lowering unicast`.";

    NO_SEM = 705, "the instruction does not have this memory order", "`ld_reduce<add, release, sys>`",
    "Loads are weak, relaxed or acquire. Stores are weak, relaxed or release. Reductions are relaxed or \
     release. Choose an order that the instruction has, or add a fence.";

    NO_SCOPE = 706, "the instruction does not have this scope", "a weak access with a scope",
    "A weak access has no scope. Relaxed, acquire and release accesses need one. Remove the scope, or state \
     a stronger order.";

    NO_TARGET = 707, "the target does not have the instruction", "`ld_reduce` of e4m3 for sm_90a",
    "The instruction's form exists, but only for the targets that the message lists. Compile for one of them \
     (`--arch sm_100a`), use another element type, or use `--lowering unicast`.";

    UNDOCUMENTED = 708, "the instruction's form is not documented", "`red<min>` of f16 through the switch",
    "The assembler accepts the form, but the manual does not say what it means, so the compiler rejects it. \
     Use another element type or reduction, or use `--lowering unicast`.";

    NO_WORD = 709, "the instruction does not have this shape or layout", "an accumulator of 40 columns \
         for i8 on sm_90a",
    "Matrix products exist only for certain types, numbers of columns and orders of elements in memory \
     (docs/mma.md). Bulk copies exist only for certain memories and reductions (docs/bulk.md). The message \
     names the part that does not match the rest, and lists what does match.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_have_explanations() {
        assert!(PASSES.is_sorted_by(|a, b| a.code < b.code));
        assert_eq!(ISA.iter().map(|i| i.code.0).collect::<Vec<_>>(), (701..=709).collect::<Vec<_>>());
        for info in PASSES.iter().chain(ISA) {
            assert!((400..450).contains(&info.code.0) || info.code.0 > 700, "{}", info.code);
            assert!(!info.title.ends_with('.') && info.title.len() < 90, "{}", info.title);
            assert!(info.explanation.ends_with('.') && info.explanation.len() > 40, "{}", info.explanation);
        }
    }
}
