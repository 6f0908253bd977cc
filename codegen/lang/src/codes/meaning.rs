//! The codes E0100 to E0139, which the elaborator reports.

weft_ir::codes! {
    /// The codes of the elaborator.
    MEANING Text:
    UNKNOWN_NAME = 100, "unknown name",
        "kernel k() block(32) { let x = missing; }",
        "No parameter, variable, constant, function or built-in with this name is in scope. Names must \
         be defined before they are used.";
    NOT_GIVEN = 101, "a parameter has no value",
        "kernel k<N: int>(x: global<f32, (N):(1)>) block(32) { }",
        "A compile-time parameter without a default needs a value. Give it with `-D N=1048576`, or use \
         `--input`, which takes it from the file's shape.";
    BAD_DEFINE = 102, "a value does not fit its parameter",
        "kernel k<T: float = i32>(x: global<T, (8):(1)>) block(32) { }",
        "The value of a compile-time parameter does not match its bound. It has another kind than the bound \
         requires (`int`, `dtype`, `float`, `bool`), or it is not divisible by the number that the bound \
         promises.";
    WRONG_KIND = 103, "a value of another kind is needed",
        "kernel k(team: team) block(32) { let x = team + 1; }",
        "An operation or function got a value for which it has no meaning, such as arithmetic on a team or \
         an index that is not an integer.";
    WRONG_ARGS = 104, "wrong arguments",
        "kernel k() block(32) { let x = ceil_div(1); }",
        "A function was called with the wrong number of arguments, with an argument name that it does not \
         have, or with an unknown word in angle brackets.";
    NOT_ASSIGNABLE = 105, "this cannot be assigned",
        "kernel k() block(32) { let x = 1; x = 2; }",
        "Only elements of tensors and variables declared with `let mut` can be assigned.";
    LAYOUT = 106, "the result is not a layout",
        "kernel k(x: global<f32, (6,4):(1,8)>) block(32) { let y = composition(x, (4,2):(1,3)); }",
        "A layout function was applied where CuTe's static assertions would fail: the division is not \
         exact, modes overlap, or shapes do not match. The message names the mode and the numbers.";
    BAD_INDEX = 107, "the index does not fit the tensor",
        "kernel k(x: global<f32, (4,8):(1,4)>) block(32) { let y = x[0, 0, 0]; }",
        "A tensor is indexed with one coordinate for each mode (`_` keeps a whole mode), or with a single \
         linear coordinate.";
    NOT_CONSTANT = 108, "this must be known when the kernel is compiled",
        "kernel k(n: int) block(n) { }",
        "Launch attributes, fully unrolled loops and shapes of register tensors are compile-time constants: literals, constants, compile-time parameters and arithmetic on them.";
    TOO_DEEP = 109, "functions call each other without end",
        "fn f(x) { f(x) } kernel k() block(32) { f(1); }",
        "Functions are inlined, so they cannot recurse, and calls can nest 64 deep.";
    TOO_LARGE = 110, "the kernel becomes too large",
        "kernel k() block(32) { let mut a: f32 = 0.0; for i in 0..1000000 unroll { a += 1.0; } }",
        "Unrolling and inlining would make more instructions than the compiler accepts (200,000). Unroll less: `unroll(4)`.";
    BAD_ATTR = 111, "unknown or malformed launch attribute",
        "kernel k() block(32) colour(3) { }",
        "A kernel has `block(x, y, z)` with 1 to 1024 threads in total. It can have `grid(x, y, z)`, \
         `cluster(x, y, z)`, `computes(...)` and `signaled(...)`.";
    BAD_PARAM = 112, "this cannot be a parameter's type",
        "kernel k(x: shared<f32, (8):(1)>) block(32) { }",
        "A kernel's parameters are tensors in `global` or `symm` memory, scalars (`int`, `i32`, `f32`, ...), `barrier` and `team`.";
    NO_FILE = 113, "the file of a `use` cannot be read",
        "use weft::no_such_part; kernel k() block(32) { }",
        "`use \"file.weft\";` names a file relative to the file that contains it. `use weft::name;` names a \
         part of the built-in library.";
    NO_KERNEL = 114, "the kernel is missing or ambiguous",
        "fn f(x) { x }",
        "The file must have a kernel. If it has several and the command needs one, name it with `--kernel`.";
    MISMATCH = 115, "types or shapes do not match",
        "kernel k(x: global<f32, (8):(1)>, y: global<f16, (8):(1)>) block(8) { x[0] = y[0]; }",
        "The two sides of an operation or assignment must have the same element type and the same shape. \
         There is no implicit conversion: write `.to<f32>()`.";
    DUPLICATE = 116, "a name is defined twice",
        "fn f(x) { x } fn f(y) { y } kernel k() block(32) { }",
        "Functions, kernels and constants share one name space, in a file and in the files that it uses. \
         The parameters of one head must differ from each other.";
    BAD_PARTITION = 117, "the tensor cannot be divided among the threads",
        "kernel k(n: int, x: global<f32, (n,5):(1,8)>) block(32) { let part = partition(x, threads()); }",
        "`partition` needs a layout whose elements can be distributed in vectors. Choose a tile that \
         divides the extents, or partition row by row.";
    BAD_RETURN = 118, "code that is never reached, or a value that is never used",
        "fn f(x) { return x; let y = 1; } kernel k() block(32) { let z = f(1); }",
        "The code after `return`, `break` or `continue` in the same block never runs. Put the jump under \
         a condition, or remove the code after it. A kernel returns no value, so write `return;` there.";
    NOT_HELD = 119, "this tensor does not fit registers",
        "kernel k(n: int, x: global<f32, (n):(1)>) block(32) { let s = sum<block>(x); }",
        "Reading a whole tensor into registers needs a compile-time extent of at most 1024 elements per \
         thread. Loop over the steps of a `partition` instead.";
    ASSERTION = 120, "a static_assert does not hold",
        "kernel k<N: int = 3>() block(32) { static_assert(N % 2 == 0, \"N must be even\"); }",
        "The condition of a `static_assert` is false, or is not known when the kernel is compiled.";
    NO_LOOP = 121, "`break` or `continue` outside of a loop",
        "kernel k() block(32) { break; }",
        "`break` leaves the innermost `for`, `while` or `loop` around it, and `continue` starts its next \
         round. A function that is called in a loop is not part of that loop. Let it return a truth \
         value, and test that value in the loop.";
    BAD_ROLE = 127, "a role that does not fit its parameter",
        "kernel k(zeroed n: i32) block(32) { }",
        "Only tensors have a role: `input`, `output`, `zeroed` or `workspace`. A tensor that \
         `computes(...)` reads cannot be an `output` or a `workspace`, because these hold no data \
         before a launch. Its result cannot be a `workspace`, because a workspace is not read after a \
         launch.";
}
