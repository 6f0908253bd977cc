//! The codes E0100 to E0139, which the elaborator reports.

weft_ir::codes! {
    /// The codes of the elaborator.
    MEANING Text:
    UNKNOWN_NAME = 100, "unknown name",
        "kernel k() block(32) { let x = missing; }",
        "No parameter, variable, constant, function or built-in with this name is in scope. A name must be \
         defined before it is used. Check the spelling, or define the name or import it with `use`.";
    NOT_GIVEN = 101, "a parameter has no value",
        "kernel k<N: int>(x: global<f32, (N):(1)>) block(32) { }",
        "A compile-time parameter without a default needs a value. Pass it with `-D N=1048576`. Or use \
         `--input`, which derives it from the shape of the data in the file.";
    BAD_DEFINE = 102, "a value does not fit its parameter",
        "kernel k<T: float = i32>(x: global<T, (8):(1)>) block(32) { }",
        "The value of a compile-time parameter does not match its bound. Either it has another kind than the \
         bound requires (`int`, `dtype`, `float`, `bool`), or it is not divisible by the number that the \
         bound promises. Pass a value that matches, or change the bound.";
    WRONG_KIND = 103, "a value of another kind is needed",
        "kernel k(team: team) block(32) { let x = team + 1; }",
        "An operation or function got a value for which it is not defined, such as arithmetic on a team, or \
         an index that is not an integer. The message says which kind of value is expected.";
    WRONG_ARGS = 104, "wrong arguments",
        "kernel k() block(32) { let x = ceil_div(1); }",
        "A function was called with the wrong number of arguments, with an argument name that it does not \
         have, or with an unknown word in angle brackets. docs/language.md lists the functions and their \
         arguments.";
    NOT_ASSIGNABLE = 105, "this cannot be assigned",
        "kernel k() block(32) { let x = 1; x = 2; }",
        "Only variables that are declared with `let mut`, and elements of tensors, can be assigned. Declare \
         the variable with `let mut`, or give the new value a new name with `let`.";
    LAYOUT = 106, "the result is not a layout",
        "kernel k(x: global<f32, (6,4):(1,8)>) block(32) { let y = composition(x, (4,2):(1,3)); }",
        "A layout function was applied where CuTe's static assertions would fail: a division is not exact, \
         modes overlap, or shapes do not match. The message names the mode and the numbers. Choose a shape or \
         a tile that divides the layout.";
    BAD_INDEX = 107, "the index does not fit the tensor",
        "kernel k(x: global<f32, (4,8):(1,4)>) block(32) { let y = x[0, 0, 0]; }",
        "A tensor is indexed with one coordinate for each mode, or with a single linear coordinate. Write as \
         many coordinates as the tensor has modes. `_` keeps a whole mode.";
    NOT_CONSTANT = 108, "this must be known when the kernel is compiled",
        "kernel k(n: int) block(n) { }",
        "Launch attributes, the bounds of fully unrolled loops and the shapes of register tensors must be \
         known at compile time. They consist of literals, constants, compile-time parameters and arithmetic \
         on these. Make the value a compile-time parameter (`N: int`).";
    TOO_DEEP = 109, "functions call each other without end",
        "fn f(x) { f(x) } kernel k() block(32) { f(1); }",
        "Functions are inlined where they are called, so they cannot recurse, and calls can nest at most 64 \
         deep. Replace the recursion by a loop.";
    TOO_LARGE = 110, "the kernel becomes too large",
        "kernel k() block(32) { let mut a: f32 = 0.0; for i in 0..1000000 unroll { a += 1.0; } }",
        "Unrolling and inlining would make more instructions than the compiler accepts (200,000). Unroll \
         fewer rounds, for example with `unroll(4)`.";
    BAD_ATTR = 111, "unknown or malformed launch attribute",
        "kernel k() block(32) colour(3) { }",
        "A kernel must have `block(x, y, z)`, with 1 to 1024 threads in total, unless it has roles. It can \
         have `grid(x, y, z)`, `cluster(x, y, z)`, `computes(...)` and `signaled(...)`. Other attributes do \
         not exist.";
    BAD_PARAM = 112, "this cannot be a parameter's type",
        "kernel k(x: shared<f32, (8):(1)>) block(32) { }",
        "The launcher can pass tensors in `global` or `symm` memory, scalars (`int`, `i32`, `f32`, ...), \
         `barrier` and `team`. Other types cannot be parameters of a kernel. Declare shared memory in the \
         kernel, `shared<f32>(layout)`.";
    NO_FILE = 113, "the file of a `use` cannot be read",
        "use weft::no_such_part; kernel k() block(32) { }",
        "`use \"file.weft\";` names a file relative to the file that contains it. `use weft::name;` names a \
         part of the built-in library. There is no such file or part, or the file cannot be read. Correct the \
         name.";
    NO_KERNEL = 114, "the kernel is missing or ambiguous",
        "fn f(x) { x }",
        "The file must have a kernel. If it has several and the command needs one of them, name it with \
         `--kernel`.";
    MISMATCH = 115, "types or shapes do not match",
        "kernel k(x: global<f32, (8):(1)>, y: global<f16, (8):(1)>) block(8) { x[0] = y[0]; }",
        "The two sides of an operation or assignment must have the same element type and the same shape. \
         There is no implicit conversion: write `.to<f32>()`.";
    DUPLICATE = 116, "a name is defined twice",
        "fn f(x) { x } fn f(y) { y } kernel k() block(32) { }",
        "Functions, kernels and constants share one name space, in a file and in the files that it uses. The \
         parameters of one function or kernel must also have different names. Rename one of the two.";
    BAD_PARTITION = 117, "the tensor cannot be divided among the threads",
        "kernel k(n: int, x: global<f32, (n,5):(1,8)>) block(32) { let part = partition(x, threads()); }",
        "`partition` needs a layout whose elements can be distributed in vectors. The layout of this tensor \
         cannot be. Choose a tile that divides the extents, or partition the tensor row by row.";
    BAD_RETURN = 118, "code that is never reached, or a value that is never used",
        "fn f(x) { return x; let y = 1; } kernel k() block(32) { let z = f(1); }",
        "Code after `return`, `break` or `continue` in the same block never runs. Put the jump under a \
         condition, or remove the code after it. A kernel returns no value, so write `return;` there.";
    NOT_HELD = 119, "this tensor does not fit registers",
        "kernel k(n: int, x: global<f32, (n):(1)>) block(32) { let s = sum<block>(x); }",
        "Reading a whole tensor into registers needs an extent that is known at compile time and gives each \
         thread at most 1024 elements. Partition the tensor and loop over the steps instead.";
    ASSERTION = 120, "a static_assert does not hold",
        "kernel k<N: int = 3>() block(32) { static_assert(N % 2 == 0, \"N must be even\"); }",
        "The condition of a `static_assert` is false, or its value is not known at compile time. The kernel \
         or the function states with it what it needs. Choose parameters for which the condition holds.";
    NO_LOOP = 121, "`break` or `continue` outside of a loop",
        "kernel k() block(32) { break; }",
        "`break` leaves the innermost `for`, `while` or `loop` around it, and `continue` starts its next \
         round. A function that is called in a loop is not part of that loop. Let the function return a truth \
         value, and test the value in the loop.";
    BAD_ROLE = 127, "a role that does not fit its parameter",
        "kernel k(zeroed n: i32) block(32) { }",
        "Only tensors have a role: `input`, `output`, `zeroed` or `workspace`. A tensor that `computes(...)` \
         reads cannot be an `output` or a `workspace`, because these hold no data before a launch. The result \
         of `computes(...)` cannot be a `workspace`, because nobody reads a workspace after a launch. Change \
         the role, or leave it out.";
}
