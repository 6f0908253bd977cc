//! The grammar of layout expressions.
//!
//! ```text
//! program  = { name "=" chain ";" } chain
//! chain    = pair { "o" pair }                       composition, as CuTe prints it
//! pair     = sum [ ":" sum ]                         a layout
//! sum      = term { ("+" | "-") term }
//! term     = unary { ("*" | "/" | "%") unary }
//! unary    = { "-" } postfix
//! postfix  = primary { "(" list ")" }                a layout or swizzle applied to a coordinate
//! primary  = integer | "_" | name [ "{" name "=" integer {..} "}" ]
//!          | name [ "<" integers ">" ] "(" list ")" | "Sw<" integers ">"
//!          | "(" list ")" | "[" list "]" | "<" list ">"
//! ```

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::{char, digit1, multispace0};
use nom::combinator::{cut, eof, map, not, opt, recognize, value, verify};
use nom::error::{ErrorKind, ParseError};
use nom::multi::{many0, separated_list1};
use nom::sequence::{delimited, pair, preceded, separated_pair, terminated};
use nom::{Err, IResult, Parser};

use super::ExprError;

/// The longest text that is read.
pub(crate) const MAX_TEXT: usize = 1 << 16;

/// The deepest nesting of parentheses and calls.
const MAX_NESTING: usize = 48;

/// A part of an expression, and the position at which it begins.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub at: usize,
    pub kind: NodeKind,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Int(u64),
    All,
    Name {
        name: String,
        facts: Vec<(String, i64)>,
    },
    Swizzle(Vec<i64>),
    Tuple(Vec<Node>),
    Tiler(Vec<Node>),
    Negated(Box<Node>),
    /// A left-associative sequence of operators of one precedence.
    Arithmetic(Box<Node>, Vec<(Operator, Node)>),
    Layout(Box<Node>, Box<Node>),
    Chain(Vec<Node>),
    Call {
        name: String,
        template: Vec<i64>,
        args: Vec<Node>,
    },
    Apply(Box<Node>, Vec<Vec<Node>>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

/// Bindings, and the expression that uses them.
pub(crate) struct Program {
    pub bindings: Vec<(String, Node)>,
    pub result: Node,
}

/// The tokens that were expected at the remaining text. Of several alternatives it is the one that
/// got furthest.
#[derive(Debug)]
struct Expected<'a> {
    rest: &'a str,
    what: &'static str,
}

impl<'a> ParseError<&'a str> for Expected<'a> {
    fn from_error_kind(rest: &'a str, _: ErrorKind) -> Self {
        Expected { rest, what: "a value" }
    }

    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }

    fn or(self, other: Self) -> Self {
        if self.rest.len() < other.rest.len() { self } else { other }
    }
}

type Parsed<'a, T> = IResult<&'a str, T, Expected<'a>>;

/// Reports `what` as expected if `parser` fails at its first character.
fn expect<'a, T>(
    what: &'static str,
    mut parser: impl Parser<&'a str, Output = T, Error = Expected<'a>>,
) -> impl Parser<&'a str, Output = T, Error = Expected<'a>> {
    move |input: &'a str| match parser.parse(input) {
        Err(Err::Error(e)) if e.rest.len() == input.len() => Err(Err::Error(Expected { rest: input, what })),
        other => other,
    }
}

/// Applies `parser` and skips the white space after it.
fn lexeme<'a, T>(
    parser: impl Parser<&'a str, Output = T, Error = Expected<'a>>,
) -> impl Parser<&'a str, Output = T, Error = Expected<'a>> {
    terminated(parser, multispace0)
}

fn symbol<'a>(c: char, what: &'static str) -> impl Parser<&'a str, Output = char, Error = Expected<'a>> {
    expect(what, lexeme(char(c)))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A name: letters, digits and `_` that begin with a letter or `_`. Names of IR values such as
/// `%12` are also names.
fn name(input: &str) -> Parsed<'_, &str> {
    let word = recognize(pair(
        verify(take_while1(is_name_char), |w: &str| !w.starts_with(|c: char| c.is_ascii_digit())),
        take_while(is_name_char),
    ));
    let numbered = recognize(pair(char('%'), take_while1(is_name_char)));
    let constant =
        |w: &&str| *w != "_" && !w.strip_prefix('_').is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()));
    expect("a name", lexeme(alt((numbered, verify(word, move |w: &str| constant(&w)))))).parse(input)
}

/// Digits, possibly after a `_`, which CuTe prints before constants.
fn integer(input: &str) -> Parsed<'_, u64> {
    let (rest, digits) = lexeme(preceded(opt(char('_')), digit1)).parse(input)?;
    match digits.parse() {
        Ok(v) => Ok((rest, v)),
        Err(_) => Err(Err::Failure(Expected { rest: input, what: "an integer of at most 64 bits" })),
    }
}

fn signed(input: &str) -> Parsed<'_, i64> {
    let (rest, (minus, v)) = expect("an integer", pair(opt(lexeme(char('-'))), integer)).parse(input)?;
    let v = i128::from(v) * if minus.is_some() { -1 } else { 1 };
    match i64::try_from(v) {
        Ok(v) => Ok((rest, v)),
        Err(_) => Err(Err::Failure(Expected { rest: input, what: "an integer of at most 64 bits" })),
    }
}

/// A parser of expressions in a text, which tracks the depth of nesting.
#[derive(Clone, Copy)]
struct Grammar<'a> {
    text: &'a str,
    nesting: usize,
}

impl<'a> Grammar<'a> {
    fn at(self, rest: &str) -> usize {
        self.text.len() - rest.len()
    }

    fn node(self, input: &'a str, kind: NodeKind) -> Node {
        Node { at: self.at(input), kind }
    }

    fn deeper(self, input: &'a str) -> Result<Self, Err<Expected<'a>>> {
        if self.nesting >= MAX_NESTING {
            return Err(Err::Failure(Expected { rest: input, what: "at most 48 levels of nesting" }));
        }
        Ok(Grammar { nesting: self.nesting + 1, ..self })
    }

    fn list(self, open: char, close: char) -> impl Fn(&'a str) -> Parsed<'a, Vec<Node>> {
        move |input| {
            let inner = self.deeper(input)?;
            let more = preceded(symbol(',', "\",\""), cut(move |i| inner.chain(i)));
            let elements = map(opt(pair(move |i| inner.chain(i), many0(more))), |list| {
                list.map_or_else(Vec::new, |(first, rest)| std::iter::once(first).chain(rest).collect())
            });
            let end: &'static str = match close {
                ')' => "\",\" or \")\"",
                ']' => "\",\" or \"]\"",
                _ => "\",\" or \">\"",
            };
            delimited(lexeme(char(open)), elements, cut(symbol(close, end))).parse(input)
        }
    }

    fn template(self, input: &'a str) -> Parsed<'a, Vec<i64>> {
        delimited(lexeme(char('<')), separated_list1(symbol(',', "\",\""), signed), symbol('>', "\">\""))
            .parse(input)
    }

    fn named(self, input: &'a str) -> Parsed<'a, Node> {
        let (rest, name) = name(input)?;
        if matches!(name, "Sw" | "Swizzle") && rest.starts_with('<') {
            return map(|i| self.template(i), |p| self.node(input, NodeKind::Swizzle(p))).parse(rest);
        }
        if super::functions::find(name).is_some() {
            let (rest, call) = opt(pair(opt(|i| self.template(i)), self.list('(', ')'))).parse(rest)?;
            if let Some((template, args)) = call {
                let kind =
                    NodeKind::Call { name: name.to_string(), template: template.unwrap_or_default(), args };
                return Ok((rest, self.node(input, kind)));
            }
        }
        let fact = separated_pair(map(self::name, str::to_string), symbol('=', "\"=\""), signed);
        let facts = delimited(
            lexeme(char('{')),
            separated_list1(symbol(',', "\",\""), fact),
            cut(symbol('}', "\",\" or \"}\"")),
        );
        let (rest, facts) = opt(facts).parse(rest)?;
        let kind = NodeKind::Name { name: name.to_string(), facts: facts.unwrap_or_default() };
        Ok((rest, self.node(input, kind)))
    }

    fn primary(self, input: &'a str) -> Parsed<'a, Node> {
        let literal = map(integer, |v| self.node(input, NodeKind::Int(v)));
        let all = map(
            lexeme(terminated(
                char('_'),
                not(verify(nom::character::complete::anychar, |c| is_name_char(*c))),
            )),
            |_| self.node(input, NodeKind::All),
        );
        let tuple = map(self.list('(', ')'), |e| self.node(input, NodeKind::Tuple(e)));
        let bracketed = map(self.list('[', ']'), |e| self.node(input, NodeKind::Tiler(e)));
        let angled = map(self.list('<', '>'), |e| self.node(input, NodeKind::Tiler(e)));
        expect(
            "a number, a name, a layout, a function or \"(\"",
            alt((literal, all, tuple, bracketed, angled, move |i| self.named(i))),
        )
        .parse(input)
    }

    fn postfix(self, input: &'a str) -> Parsed<'a, Node> {
        let (rest, base) = self.primary(input)?;
        let (rest, applied) = many0(self.list('(', ')')).parse(rest)?;
        let node = if applied.is_empty() {
            base
        } else {
            self.node(input, NodeKind::Apply(Box::new(base), applied))
        };
        Ok((rest, node))
    }

    fn unary(self, input: &'a str) -> Parsed<'a, Node> {
        let (rest, signs) = many0(lexeme(char('-'))).parse(input)?;
        let (rest, operand) = self.postfix(rest)?;
        let negated = signs.len() % 2 == 1;
        Ok((rest, if negated { self.node(input, NodeKind::Negated(Box::new(operand))) } else { operand }))
    }

    /// A sequence of `operand`s joined by `operators`.
    fn run(
        self,
        input: &'a str,
        operand: fn(Self, &'a str) -> Parsed<'a, Node>,
        operators: &[(char, Operator)],
    ) -> Parsed<'a, Node> {
        let (mut rest, first) = operand(self, input)?;
        let mut more = Vec::new();
        while let Some((_, op)) = operators.iter().find(|(c, _)| rest.starts_with(*c)) {
            let (after, _) = multispace0.parse(&rest[1..])?;
            let (after, right) = cut(move |i| operand(self, i)).parse(after)?;
            more.push((*op, right));
            rest = after;
        }
        let node = if more.is_empty() {
            first
        } else {
            self.node(input, NodeKind::Arithmetic(Box::new(first), more))
        };
        Ok((rest, node))
    }

    fn term(self, input: &'a str) -> Parsed<'a, Node> {
        self.run(input, Self::unary, &[('*', Operator::Mul), ('/', Operator::Div), ('%', Operator::Rem)])
    }

    fn sum(self, input: &'a str) -> Parsed<'a, Node> {
        self.run(input, Self::term, &[('+', Operator::Add), ('-', Operator::Sub)])
    }

    fn pair(self, input: &'a str) -> Parsed<'a, Node> {
        let (rest, left) = self.sum(input)?;
        let (rest, right) = opt(preceded(lexeme(char(':')), cut(move |i| self.sum(i)))).parse(rest)?;
        let node = match right {
            None => left,
            Some(right) => self.node(input, NodeKind::Layout(Box::new(left), Box::new(right))),
        };
        Ok((rest, node))
    }

    fn chain(self, input: &'a str) -> Parsed<'a, Node> {
        let after = value(
            (),
            lexeme(terminated(
                tag("o"),
                not(verify(nom::character::complete::anychar, |c| is_name_char(*c))),
            )),
        );
        let (rest, mut parts) = separated_list1(after, move |i| self.pair(i)).parse(input)?;
        match (parts.len(), parts.pop()) {
            (1, Some(only)) => Ok((rest, only)),
            (_, last) => {
                parts.extend(last);
                Ok((rest, self.node(input, NodeKind::Chain(parts))))
            }
        }
    }

    fn program(self, input: &'a str) -> Parsed<'a, Program> {
        let bound = terminated(self::name, symbol('=', "\"=\""));
        let binding =
            pair(map(bound, str::to_string), cut(terminated(move |i| self.chain(i), symbol(';', "\";\""))));
        let (rest, bindings) = preceded(multispace0, many0(binding)).parse(input)?;
        let end = expect("an operator or the end of the expression", eof);
        let (rest, result) = terminated(move |i| self.chain(i), end).parse(rest)?;
        Ok((rest, Program { bindings, result }))
    }
}

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<Program, ExprError> {
    if text.len() > MAX_TEXT {
        return Err(ExprError {
            position: MAX_TEXT,
            message: format!("the expression has {} bytes, over the limit of {MAX_TEXT}", text.len()),
            expected: None,
        });
    }
    let grammar = Grammar { text, nesting: 0 };
    match grammar.program(text) {
        Ok((_, program)) => Ok(program),
        Err(Err::Incomplete(_)) => Err(ExprError::new(text.len(), "the expression ends too early")),
        Err(Err::Error(e) | Err::Failure(e)) => {
            let message = match e.rest.chars().next() {
                None => "the expression ends here".to_string(),
                Some(c) => format!("unexpected {c:?}"),
            };
            Err(ExprError { position: grammar.at(e.rest), message, expected: Some(e.what.to_string()) })
        }
    }
}
