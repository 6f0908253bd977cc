//! The codes E0001 to E0029, which the lexer and the parser report.

weft_ir::codes! {
    /// The codes of the lexer and the parser.
    SYNTAX Text:

    FILE_TOO_LARGE = 1, "the file is too large", "",
    "A `.weft` file can hold at most 1 MiB. A kernel has a few kilobytes, so a larger file is probably not a \
     kernel. If the file is generated, split it and join the parts with `use`.";

    NOT_UTF8 = 2, "the file is not UTF-8", "",
    "A `.weft` file must be UTF-8 text. The message shows the position of the first byte that is not. \
     Compiled files, compressed files and UTF-16 text are rejected here. Save the file as UTF-8.";

    FOREIGN_CHARACTER = 3, "a character that is not part of the language", "const N = 4 # 2;",
    "Outside comments and strings, a `.weft` file consists of names, numbers and the operators of the \
     language. Remove the character, or replace it by the one that you meant (a straight quote for a curly \
     one, `-` for a dash).";

    UNTERMINATED_STRING = 4, "a string that does not end", "use \"tiles.weft;",
    "A string ends with `\"` on the line where it begins. Write `\\n` for a line break inside a string.";

    UNTERMINATED_COMMENT = 5, "a comment that does not end", "const N = 4; /* four /* really */",
    "Block comments nest, so every `/*` needs its own `*/`. Add the missing `*/`, or remove the `/*` inside \
     the comment.";

    UNKNOWN_ESCAPE = 6, "an unknown escape in a string", "use \"C:\\lib.weft\";",
    "In a string, a backslash begins one of the escapes `\\n`, `\\t`, `\\r`, `\\0`, `\\\\` and `\\\"`. Write \
     `\\\\` for the backslash itself.";

    MALFORMED_NUMBER = 7, "a malformed number", "const N = 12f32;",
    "Numbers have one of the forms `42`, `1_000`, `0xff`, `0b1010`, `1.5` and `1e-5`. They have no suffix, \
     because the type comes from the context. Use a conversion, `x.to<f32>()`, to choose another type.";

    NUMBER_TOO_LARGE = 8, "a number that is too large", "const N = 9223372036854775808;",
    "Whole numbers are signed integers of 64 bits, so they go up to 9223372036854775807 (2^63 - 1), in every \
     base. Other numbers go up to 1.79e308. Write a number within this range.";

    TOO_DEEP = 9, "nested too deeply",
    "const N = ----------------------------------------------------------------------------------------------\
     ------------------------------------------------1;",
    "Parentheses, blocks, arguments and conditionals can nest 64 levels deep. The links of a chain such as \
     `a + b + c` or `x.f().g()` count as well, and links and levels together are limited to 128. Name parts \
     of the expression with `let`, or write a loop.";

    EXPECTED_ITEM = 10, "expected an item", "let n = 4;",
    "A file is a sequence of `kernel`, `fn`, `const` and `use`. Statements belong inside the braces of a \
     kernel or a function.";

    MISSING_SEMICOLON = 11, "a missing `;`", "kernel k() { let a = 1 let b = 2; }",
    "Statements, `use` and `const` end with `;`. Two kinds of code need none: the last expression of a \
     block, which is the value of the block, and statements that end with a block (`for`, `while`, `loop`, \
     `if`).";

    UNCLOSED = 12, "a bracket that is not closed", "kernel k() { f(1, 2; }",
    "Every `(`, `[`, `{` and `<` needs its counterpart, and `,` separates the parts between them. The \
     message also shows where the bracket opens. Insert the closing bracket or the missing comma.";

    EXPECTED_EXPRESSION = 13, "expected an expression or a statement", "const N = 4 + ;",
    "A value is expected here: a number, a name, a call, or an expression in parentheses. Write the missing \
     value, or remove the operator or comma that needs it.";

    EXPECTED_NAME = 14, "expected a name", "const for = 4;",
    "A name begins with a letter or `_`, and continues with letters, digits and `_`. Keywords are reserved \
     and cannot be names. Choose another name.";

    EXPECTED_TYPE = 15, "expected a type", "fn f(n: 8) {}",
    "A type is expected here. Write the name of a type, followed by arguments if it has any: `f32`, `T`, \
     `int % 8`, `team`, `symm<f32, (N):(1)>`.";

    EXPECTED_TOKEN = 16, "expected something else", "kernel k() { for i 0..4 {} }",
    "The statement or item that began before this place continues with another token. The message names that \
     token. Insert it, or check the code before this place for a mistake.";

    CHAINED_COMPARISON = 17, "comparisons do not chain", "const B = 0 < 1 < 2;",
    "`a < b < c` would compare a truth value with a number. Write `a < b && b < c`, or use parentheses. If a \
     generic call such as `f<n>(x)` was meant, its arguments must be names or whole numbers.";

    PARAM_WITHOUT_TYPE = 18, "a kernel parameter without a type", "kernel k(x) {}",
    "A program that launches a kernel must know what to pass to it, so the parameters of a kernel need \
     types: `x: symm<f32, (N):(1)>`, `n: i32`. Only functions can leave them out.";

    NOT_A_PLACE = 19, "assignment to something that cannot be assigned", "kernel k() { f(x) = 1; }",
    "Only variables and elements of tensors can be assigned. The left side of `=`, `+=` and similar \
     operators is therefore a name or an indexed tensor: `x`, `t[i, _]`. To compare two values, write `==`.";

    CHAINED_LAYOUT = 20, "`:` does not chain", "const L = 4:2:1;",
    "A layout is one shape and one stride, `shape:stride`. For several modes, use tuples: `(4, 2):(2, 1)`.";

    GENERIC_ARGUMENT = 21, "a generic argument that is neither a name nor a whole number",
    "kernel k() { t.tile<4 * 2>(); }",
    "The generic arguments of a call are names, whole numbers, `_`, and `name = ` one of these. Longer \
     expressions could be confused with comparisons. Give such an expression a name with `let` or `const` \
     first.";

    STRAY_RANGE = 22, "a range is not allowed here", "kernel k() { let r = 0..4; }",
    "`a..b` is allowed in `for i in a..b` and in an index, `t[a..b]`. A range is not a value, so it cannot \
     be stored or passed. Pass both ends instead.";

    NOT_CALLABLE = 23, "a call of something that is not a name", "kernel k() { (f)(1); }",
    "Functions are not values, so only a name can be called. A call is written as `f(x)`, or as a method, \
     `x.f()`.";

    NESTED_ITEM = 24, "an item inside a block", "kernel k() { const N = 4; }",
    "`const`, `use`, `fn` and `kernel` belong at the top level of a file. Move the item there. To name a \
     value in a block, use `let`.";

    ROLE = 27, "the role does not exist, or is not allowed here",
    "kernel k(scratch x: global<f32, (8):(1)>) block(32) { }",
    "A word before the name of a kernel's tensor parameter states what the kernel uses the tensor for: \
     `input`, `output`, `zeroed` or `workspace`. A parameter of a function has no role, because functions are \
     inlined. Use one of these roles, or remove the word.";
}
