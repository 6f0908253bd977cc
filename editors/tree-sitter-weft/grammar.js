// The grammar of .weft files for tree-sitter. The parser in codegen/lang/src/parser defines the language.

const list = (rule) => optional(seq(rule, repeat(seq(",", rule)), optional(",")));

// Operators by their precedence, the lowest first. Those before `ARGUMENT` are not allowed between `<` and `>`.
const OPERATORS = [
    ["||"],
    ["&&"],
    ["==", "!=", "<", "<=", ">", ">="],
    ["|"],
    ["^"],
    ["&"],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
];
const ARGUMENT = 3;
const LAYOUT = 1;
const LOOSEST = 2;
const UNARY = LOOSEST + OPERATORS.length;
const POSTFIX = UNARY + 1;

const ASSIGNMENTS = ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];

const oneOf = (signs) => (signs.length === 1 ? signs[0] : choice(...signs));

const binary = (value, from) =>
    choice(
        ...OPERATORS.slice(from).map((signs, n) =>
            prec.left(
                LOOSEST + from + n,
                seq(field("left", value), field("operator", oneOf(signs)), field("right", value)),
            ),
        ),
    );

module.exports = grammar({
    name: "weft",
    word: ($) => $.identifier,
    extras: ($) => [/\s/, $.line_comment, $.block_comment],
    // Block comments nest, so src/scanner.c reads them.
    externals: ($) => [$.block_comment],
    supertypes: ($) => [$._expression],
    conflicts: ($) => [
        // `a < b` and `a<b>(c)`, `r.x < y` and `r.x<y>()`
        [$._operand, $.call],
        [$.field, $.method],
        // `(a = 1)` and `(a)`, `f(a = 1)` and `f(a)`, `{ if c { } }` and `{ if c { 1 } else { 2 } }`
        [$.statement, $._operand],
    ],

    rules: {
        source_file: ($) => repeat($._item),
        _item: ($) => choice($.use, $.const, $.kernel, $.function),
        use: ($) => seq("use", field("path", choice($.string, $.library_path)), ";"),
        library_path: ($) => seq($.identifier, repeat(seq("::", $.identifier))),
        const: ($) => seq("const", field("name", $.identifier), "=", field("value", $._expression), ";"),
        kernel: ($) =>
            seq(
                "kernel",
                field("name", $.identifier),
                optional($.generic_parameters),
                $.parameters,
                repeat($.attribute),
                field("body", $.block),
            ),
        function: ($) =>
            seq(
                optional("reference"),
                "fn",
                field("name", $.identifier),
                optional($.generic_parameters),
                $.parameters,
                optional(seq("->", field("result", $.type))),
                field("body", $.block),
            ),
        attribute: ($) => seq(field("name", $.identifier), "(", list($._expression), ")"),
        generic_parameters: ($) => seq("<", list($.generic_parameter), ">"),
        generic_parameter: ($) =>
            seq(
                field("name", $.identifier),
                ":",
                field("kind", choice("fn", $.identifier)),
                optional($._divisor),
                optional(seq("=", field("default", $._argument_value))),
            ),
        parameters: ($) => seq("(", list($.parameter), ")"),
        parameter: ($) =>
            seq(
                optional(field("role", $.identifier)),
                field("name", $.identifier),
                optional(seq(":", field("type", $.type))),
            ),
        type: ($) =>
            prec.right(seq(field("name", $.identifier), optional($.type_arguments), optional($._divisor))),
        type_arguments: ($) => seq("<", list($._type_argument), ">"),
        _type_argument: ($) =>
            choice($._argument_value, alias($._named_type_argument, $.named_argument)),
        _named_type_argument: ($) =>
            seq(field("name", $.identifier), "=", field("value", $._argument_value)),
        _divisor: ($) => seq("%", field("divisor", $._operand)),

        block: ($) => seq("{", repeat($.statement), optional(field("value", $._expression)), "}"),
        statement: ($) =>
            choice(
                $.let,
                $.assignment,
                $.for,
                $.while,
                $.loop,
                $.role,
                $.return,
                seq(choice("break", "continue"), ";"),
                seq($._expression, ";"),
                $.conditional,
            ),
        let: ($) =>
            seq(
                "let",
                optional("mut"),
                field("name", $.identifier),
                optional(seq(":", field("type", $.type))),
                "=",
                field("value", $._expression),
                ";",
            ),
        assignment: ($) =>
            seq(
                field("target", $._expression),
                field("operator", choice(...ASSIGNMENTS)),
                field("value", $._expression),
                ";",
            ),
        for: ($) =>
            seq(
                "for",
                field("name", $.identifier),
                "in",
                field("range", $.range),
                optional(seq("step", field("step", $._expression))),
                optional(seq("unroll", optional(seq("(", field("unroll", $._expression), ")")))),
                field("body", $.block),
            ),
        while: ($) => seq("while", field("condition", $._expression), field("body", $.block)),
        loop: ($) => seq("loop", field("body", $.block)),
        role: ($) => seq("role", field("name", $.identifier), $.arguments, field("body", $.block)),
        return: ($) => seq("return", optional($._expression), ";"),

        _expression: ($) => choice($._operand, $.binary, $.layout),
        _operand: ($) =>
            choice(
                $.identifier,
                $.number,
                $.string,
                $.boolean,
                $.whole,
                $.unary,
                $.parenthesized,
                $.tuple,
                $.record,
                $.conditional,
                $.call,
                $.method,
                $.field,
                $.index,
            ),
        layout: ($) => prec.left(LAYOUT, seq($._expression, ":", $._expression)),
        binary: ($) => binary($._expression, 0),
        // An expression between `<` and `>`, where `>` is not an operator.
        _argument_value: ($) =>
            choice($._operand, alias($._argument_binary, $.binary), alias($._argument_layout, $.layout)),
        _argument_binary: ($) => binary($._argument_value, ARGUMENT),
        _argument_layout: ($) => prec.left(LAYOUT, seq($._argument_value, ":", $._argument_value)),
        unary: ($) => prec(UNARY, seq(choice("-", "!"), $._operand)),
        parenthesized: ($) => seq("(", $._expression, ")"),
        tuple: ($) => seq("(", optional(seq($._expression, ",", list($._expression))), ")"),
        record: ($) => seq("(", $.named_argument, repeat(seq(",", $.named_argument)), optional(","), ")"),
        named_argument: ($) => seq(field("name", $.identifier), "=", field("value", $._expression)),
        conditional: ($) =>
            prec.right(
                seq(
                    "if",
                    field("condition", $._expression),
                    field("then", $.block),
                    optional(seq("else", field("else", choice($.block, $.conditional)))),
                ),
            ),
        call: ($) => seq(field("function", $.identifier), optional($.generic_arguments), $.arguments),
        method: ($) =>
            prec(
                POSTFIX,
                seq(
                    field("receiver", $._operand),
                    ".",
                    field("name", $.identifier),
                    optional($.generic_arguments),
                    $.arguments,
                ),
            ),
        field: ($) => prec(POSTFIX, seq(field("record", $._operand), ".", field("name", $.identifier))),
        index: ($) =>
            prec(POSTFIX, seq(field("tensor", $._operand), "[", list(choice($._expression, $.range)), "]")),
        range: ($) => seq(field("first", $._expression), "..", field("end", $._expression)),
        arguments: ($) => seq("(", list(choice($._expression, $.named_argument)), ")"),
        // These are single tokens, which distinguishes a call from a comparison.
        generic_arguments: ($) => seq("<", list($._generic_argument), ">"),
        _generic_argument: ($) => choice($._token, alias($._named_token, $.named_argument)),
        _named_token: ($) => seq(field("name", $.identifier), "=", field("value", $._token)),
        _token: ($) =>
            choice($.identifier, $.number, alias($._negative, $.unary), $.boolean, $.whole),
        _negative: ($) => seq("-", $.number),

        identifier: () => /[A-Za-z_][A-Za-z0-9_]*/,
        whole: () => "_",
        boolean: () => choice("true", "false"),
        number: () =>
            token(
                choice(
                    /0[xX][0-9a-fA-F][0-9a-fA-F_]*/,
                    /0[bB][01][01_]*/,
                    /[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][+-]?[0-9][0-9_]*)?/,
                ),
            ),
        string: ($) => seq('"', repeat(choice($.escape, token.immediate(prec(1, /[^"\\\n]+/)))), '"'),
        escape: () => token.immediate(/\\./),
        line_comment: () => token(seq("//", /[^\n]*/)),
    },
});
