//! The meaning of each code of a [`LayoutError`](crate::LayoutError).

/// A code with its explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The code that is explained, as [`LayoutError::code`](crate::LayoutError::code) gives it.
    pub code: &'static str,
    /// One line without a full stop.
    pub title: &'static str,
    /// One paragraph that says what is wrong and what to do.
    pub explanation: &'static str,
    /// An expression of `weft layout` that fails with this code. It is empty if only symbolic
    /// layouts do.
    pub example: &'static str,
}

const fn info(
    code: &'static str,
    title: &'static str,
    explanation: &'static str,
    example: &'static str,
) -> Info {
    Info { code, title, explanation, example }
}

/// All codes in ascending order.
pub const CODES: &[Info] = &[
    info(
        "L01",
        "shape and stride are not congruent",
        "A layout has one stride for each extent, so its shape and its stride have the same nesting. Give each mode of the shape a stride, in the same brackets.",
        "(4,(2,2)):(1,8,4)",
    ),
    info(
        "L02",
        "an argument whose form does not match the layout",
        "A coordinate, a tiler or a profile has at most as many modes as the layout to which it is applied, \
         and nests only where the layout nests. Leave out the modes that do not exist. To keep a mode, write \
         `_` for it.",
        "crd2idx((1,2,3),(4,4))",
    ),
    info(
        "L03",
        "a negative extent",
        "An extent is a number of elements, so it must be 0 or more. A symbolic extent must be known to be 0 \
         or more. Correct the extent.",
        "(4,-2):(1,4)",
    ),
    info(
        "L04",
        "a mode that does not exist",
        "The layout has no mode with this number. Modes are numbered from 0, and the message says how many \
         there are.",
        "get<2>((4,8):(1,4))",
    ),
    info(
        "L05",
        "a composition whose stride does not divide the extent",
        "In `composition(a, b)`, each mode of b steps through a. Its stride must be a multiple of the extent \
         that it steps over, or divide that extent. Otherwise the steps end within a mode of a, and no layout \
         describes the result. Choose a stride that divides the extent.",
        "composition((4,8):(1,5),2:6)",
    ),
    info(
        "L06",
        "a composition whose extent does not fill the modes",
        "In `composition(a, b)`, each mode of b must fill whole modes of a, or stay within one of them. \
         Otherwise no layout describes the result. Choose an extent of b that divides the modes of a.",
        "composition((6,4):(1,8),4:2)",
    ),
    info(
        "L07",
        "a condition that cannot be proven",
        "The property holds for some values of the layout's variables, but it cannot be proven for all of \
         them. Declare the divisibility of the variables (`n: int % 8`), or bind them to constants.",
        "",
    ),
    info(
        "L08",
        "a complement of modes that overlap",
        "`complement` needs a layout whose modes can be sorted so that each steps over all elements of the \
         modes before it. Here two modes reach the same offsets. Use a layout whose modes do not overlap.",
        "complement((4,4):(1,2),64)",
    ),
    info(
        "L09",
        "a division with a remainder",
        "The function divides extents or strides, and CuTe asserts that no remainder is left. Choose a tile that divides the layout, or a function that rounds up, such as `zipped_divide`.",
        "shape_div(6,4)",
    ),
    info(
        "L10",
        "a symbolic value where a constant is needed",
        "The function needs numbers to decide what its result looks like, but it got a symbolic value. Bind \
         the variables to constants.",
        "",
    ),
    info(
        "L11",
        "an argument that the function is not defined for",
        "The function has no result for this argument. The message says which arguments the function takes.",
        "make_swizzle(3,3)",
    ),
    info(
        "L12",
        "arithmetic without a result",
        "The numbers of layouts are signed integers of 64 bits. Either the result is outside their range, or \
         a division is by zero. Use smaller extents or strides, or a divisor that is not zero.",
        "size((4294967296,4294967296))",
    ),
    info(
        "L13",
        "an argument above a limit",
        "Deep nesting and large tables take memory and time, so each function has a limit. The message \
         states the limit. Use a smaller argument.",
        "",
    ),
    info(
        "L14",
        "a composition whose modes overlap",
        "In `composition(a, b)`, several modes of b step through the same mode of a, and together they go \
         past its end. No layout describes the result. Choose a smaller extent for b.",
        "composition((4,4):(1,8),(3,2):(1,3))",
    ),
];
