//! E0001 to E0029: what the lexer and the parser reject.

weft_ir::codes! {
    /// What the lexer and the parser reject.
    SYNTAX Text:

    FILE_TOO_LARGE = 1, "the file is too large", "",
    "A `.weft` file may hold 1 MiB. A kernel is a few kilobytes, so a larger file is most likely something \
     else; if it is generated, split it and join the parts with `use`.";

    NOT_UTF8 = 2, "the file is not UTF-8", "",
    "A `.weft` file is UTF-8 text. The place of the first byte that is not is shown; a compiled or compressed \
     file, or UTF-16 text, is rejected here.";

    FOREIGN_CHARACTER = 3, "a character that means nothing here", "const N = 4 # 2;",
    "Outside comments and strings a `.weft` file is made of names, numbers and the operators of the language. \
     Remove the character, or replace it by the one that was meant (a straight quote for a curly one, `-` for a \
     dash).";

    UNTERMINATED_STRING = 4, "a string that does not end", "use \"tiles.weft;",
    "A string ends with `\"` on the line where it begins. Write `\\n` for a line break inside a string.";

    UNTERMINATED_COMMENT = 5, "a comment that does not end", "const N = 4; /* four /* really */",
    "Every `/*` needs its own `*/`: block comments nest.";

    UNKNOWN_ESCAPE = 6, "an unknown escape in a string", "use \"C:\\lib.weft\";",
    "In a string a backslash begins one of `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and `\\\"`. Write `\\\\` for the \
     backslash itself.";

    MALFORMED_NUMBER = 7, "a malformed number", "const N = 12f32;",
    "Numbers are written `42`, `1_000`, `0xff`, `0b1010`, `1.5` or `1e-5`. They carry no suffix: the type comes \
     from the place where they stand, or from a conversion, `x.to<f32>()`.";

    NUMBER_TOO_LARGE = 8, "a number that is too large", "const N = 9223372036854775808;",
    "Whole numbers go up to 9223372036854775807 (2^63 - 1), in every base; others up to 1.79e308.";

    TOO_DEEP = 9, "nested too deeply",
    "const N = ----------------------------------------------------------------------------------------------\
     ------------------------------------------------1;",
    "Parentheses, blocks, arguments and conditionals may nest 64 levels deep, and a chain such as `a + b + c` or \
     `x.f().g()` may have 128 links less those levels. Give parts of it names with `let`, or write a loop.";

    EXPECTED_ITEM = 10, "expected an item", "let n = 4;",
    "A file is a sequence of `kernel`, `fn`, `const` and `use`. Statements stand inside the braces of a kernel or \
     a function.";

    MISSING_SEMICOLON = 11, "a missing `;`", "kernel k() { let a = 1 let b = 2; }",
    "Statements, `use` and `const` end with `;`. Only the last expression of a block, whose value the block has, \
     and statements that end with a block (`for`, `while`, `loop`, `if`) go without.";

    UNCLOSED = 12, "a bracket that is not closed", "kernel k() { f(1, 2; }",
    "Every `(`, `[`, `{` and `<` needs its counterpart; the parts between are separated by `,`. The place where \
     the bracket opens is shown too.";

    EXPECTED_EXPRESSION = 13, "expected an expression or a statement", "const N = 4 + ;",
    "A value is wanted here: a number, a name, a call, a parenthesised expression.";

    EXPECTED_NAME = 14, "expected a name", "const for = 4;",
    "A name begins with a letter or `_`, goes on with letters, digits and `_`, and is not a keyword.";

    EXPECTED_TYPE = 15, "expected a type", "fn f(n: 8) {}",
    "A type is a name, with arguments where it takes some: `f32`, `T`, `int % 8`, `team`, \
     `symm<f32, (N):(1)>`.";

    EXPECTED_TOKEN = 16, "expected something else", "kernel k() { for i 0..4 {} }",
    "The statement or item that began before needs another sign or word at this place.";

    CHAINED_COMPARISON = 17, "comparisons do not chain", "const B = 0 < 1 < 2;",
    "`a < b < c` would compare a truth value with a number. Write `a < b && b < c`, or parentheses. If a generic \
     call such as `f<n>(x)` was meant: its arguments are names and whole numbers only.";

    PARAM_WITHOUT_TYPE = 18, "a kernel parameter without a type", "kernel k(x) {}",
    "Whoever launches a kernel has to know what to pass, so its parameters have types: `x: symm<f32, (N):(1)>`, \
     `n: i32`. Functions may leave them out.";

    NOT_A_PLACE = 19, "assignment to something that is not a place", "kernel k() { f(x) = 1; }",
    "On the left of `=`, `+=` and their like stands a name or an indexed tensor: `x`, `t[i, _]`.";

    CHAINED_LAYOUT = 20, "`:` does not chain", "const L = 4:2:1;",
    "A layout is one shape and one stride, `shape:stride`. Tuples hold those of several modes: `(4, 2):(2, 1)`.";

    GENERIC_ARGUMENT = 21, "a generic argument that is neither a name nor a whole number",
    "kernel k() { t.tile<4 * 2>(); }",
    "Between `<` and `>` of a call stand names, whole numbers, `_`, and `name = ` one of these. Give anything \
     longer a name with `let` or `const` first.";

    STRAY_RANGE = 22, "a range where none can stand", "kernel k() { let r = 0..4; }",
    "`a..b` stands in `for i in a..b` and in an index, `t[a..b]`; it is not a value of its own.";

    NOT_CALLABLE = 23, "a call of something that is not a name", "kernel k() { (f)(1); }",
    "Functions are not values: what is called is a name, `f(x)`, or a method, `x.f()`.";

    NESTED_ITEM = 24, "an item inside a block", "kernel k() { const N = 4; }",
    "`const`, `use`, `fn` and `kernel` stand at the top of a file. In a block, use `let`.";

    ROLE = 27, "a role that there is not, or where none can stand", "kernel k(scratch x: global<f32, (8):(1)>) block(32) { }",
    "Before the name of a kernel's tensor parameter may stand what the kernel uses it for: `input`, `output`, \
     `zeroed` or `workspace`. A parameter of a function has no role, because functions are inlined.";
}
