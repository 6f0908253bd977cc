; Comments and literals

[(line_comment) (block_comment)] @comment
(number) @number
(boolean) @boolean
(string) @string
(escape) @string.escape
(whole) @constant.builtin

; Words

[
  "use" "const" "kernel" "fn" "reference" "let" "mut" "role"
] @keyword
["if" "else"] @keyword.conditional
["for" "in" "step" "unroll" "while" "loop" "break" "continue"] @keyword.repeat
"return" @keyword.return

; Names. More specific patterns come last.

(identifier) @variable
((identifier) @constant
  (#match? @constant "^[A-Z][A-Z0-9_]*$"))
(library_path (identifier) @module)
(const name: (identifier) @constant)
(kernel name: (identifier) @function)
(function name: (identifier) @function)
(call function: (identifier) @function.call)
(method name: (identifier) @function.method.call)
(attribute name: (identifier) @attribute)
(field name: (identifier) @property)
(named_argument name: (identifier) @property)
(parameter name: (identifier) @variable.parameter)
(parameter role: (identifier) @keyword.modifier)
(generic_parameter name: (identifier) @type.parameter)
(generic_parameter kind: (identifier) @type.builtin)
(generic_parameter kind: "fn" @type.builtin)
(type name: (identifier) @type)
(role name: (identifier) @label)
((identifier) @type.builtin
  (#any-of? @type.builtin
    "f32" "f64" "f16" "bf16" "e4m3" "e5m2" "i8" "i16" "i32" "i64" "u8" "u16" "u32" "u64" "bool" "int"))

; Operators and delimiters

[
  "=" "+=" "-=" "*=" "/=" "%=" "&=" "|=" "^=" "<<=" ">>="
  "||" "&&" "==" "!=" "<=" ">=" "|" "^" "&" "<<" ">>" "+" "-" "*" "/" "%" "!" ".." "->"
] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ";" ":" "::" "."] @punctuation.delimiter
