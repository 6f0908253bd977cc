//! Tests that random syntax trees are unchanged after printing and parsing, and that spans show
//! their expressions.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weft_ir::Role;
use weft_ir::diag::Span;
use weft_lang::ast::*;
use weft_lang::format::format;
use weft_lang::print::print;
use weft_lang::{parse, parse_expr};

/// The precedence of an expression: a layout 0, infix operators 1 to 9, prefix operators 10, the
/// rest 11.
fn level(expr: &Expr) -> u8 {
    use BinOp::*;
    match &expr.kind {
        ExprKind::Layout(..) => 0,
        ExprKind::Binary(op, ..) => match op {
            Or => 1,
            And => 2,
            Eq | Ne | Lt | Le | Gt | Ge => COMPARISON,
            BitOr => 4,
            BitXor => 5,
            BitAnd => 6,
            Shl | Shr => 7,
            Add | Sub => 8,
            Mul | Div | Rem => 9,
        },
        ExprKind::Unary(..) => PREFIX,
        _ => POSTFIX,
    }
}
const COMPARISON: u8 = 3;
const PREFIX: u8 = 10;
const POSTFIX: u8 = 11;

fn node(kind: ExprKind) -> Expr {
    Expr { kind, span: Span::NONE }
}

/// The expression at a place that requires this precedence, in parentheses if it binds less
/// tightly.
fn at(min: u8, expr: Expr) -> Box<Expr> {
    Box::new(if level(&expr) < min { node(ExprKind::Paren(Box::new(expr))) } else { expr })
}

fn binary(op: BinOp, a: Expr, b: Expr) -> Expr {
    let level = level(&node(ExprKind::Binary(op, Box::new(a.clone()), Box::new(b.clone()))));
    let left = at(if level == COMPARISON { level + 1 } else { level }, a);
    let right = at(level + 1, b);
    // `f(a < b, c > (d))` would be parsed as a call of `a<b, c>`.
    let op = if op == BinOp::Gt && right.to_string().starts_with('(') { BinOp::Ge } else { op };
    node(ExprKind::Binary(op, left, right))
}

/// The expression at the beginning of a statement. One that begins with `if` would end after its
/// block.
fn first_in_stmt(expr: Expr) -> Expr {
    let conditional = matches!(expr.kind, ExprKind::If { .. });
    if expr.to_string().starts_with("if ") && !conditional { *at(POSTFIX + 1, expr) } else { expr }
}

fn ident() -> BoxedStrategy<Ident> {
    const NAMES: &[&str] = &["x", "t", "N", "f32", "_a1", "step", "unroll", "inf", "block", "lets", "e5"];
    prop::sample::select(NAMES).prop_map(|name| Ident { name: name.into(), span: Span::NONE }).boxed()
}

fn leaf() -> BoxedStrategy<Expr> {
    let finite = prop::num::f64::POSITIVE | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO;
    prop_oneof![
        1 => (0..20i64).prop_map(ExprKind::Int),
        1 => (0..=i64::MAX).prop_map(ExprKind::Int),
        1 => finite.prop_map(|value| ExprKind::Float(value.abs())),
        1 => any::<bool>().prop_map(ExprKind::Bool),
        1 => ".{0,6}[\"\\\\\n]?".prop_map(|text| ExprKind::Str(text.into())),
        4 => ident().prop_map(ExprKind::Name),
        1 => Just(ExprKind::Underscore),
        1 => Just(ExprKind::Tuple(Vec::new())),
    ]
    .prop_map(node)
    .boxed()
}

fn generic_arg() -> BoxedStrategy<Arg> {
    let number = (0..100i64).prop_map(|n| node(ExprKind::Int(n)));
    let negative = number.clone().prop_map(|n| node(ExprKind::Unary(UnOp::Neg, Box::new(n))));
    let name = ident().prop_map(|name| node(ExprKind::Name(name)));
    let value = prop_oneof![number, negative, name, Just(node(ExprKind::Underscore))];
    (option::of(ident()), value).prop_map(|(name, value)| Arg { name, value }).boxed()
}

fn arg(value: BoxedStrategy<Expr>) -> BoxedStrategy<Arg> {
    (option::of(ident()), value).prop_map(|(name, value)| Arg { name, value }).boxed()
}

fn bin_op() -> BoxedStrategy<BinOp> {
    use BinOp::*;
    prop::sample::select(vec![
        Or, And, Eq, Ne, Lt, Le, Gt, Ge, BitOr, BitXor, BitAnd, Shl, Shr, Add, Sub, Mul, Div, Rem,
    ])
    .boxed()
}

fn expr() -> BoxedStrategy<Expr> {
    let compound = |inner: BoxedStrategy<Expr>| {
        let un_op = prop::sample::select(&[UnOp::Neg, UnOp::Not][..]);
        let index = prop_oneof![
            3 => inner.clone(),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| node(ExprKind::Range(Box::new(a), Box::new(b)))),
        ];
        let branch = block(inner.clone(), Just(None).boxed());
        let args = vec(arg(inner.clone()), 0..3).boxed();
        prop_oneof![
            (bin_op(), inner.clone(), inner.clone()).prop_map(|(op, a, b)| binary(op, a, b)),
            (un_op, inner.clone()).prop_map(|(op, a)| node(ExprKind::Unary(op, at(PREFIX, a)))),
            inner.clone().prop_map(|a| node(ExprKind::Paren(Box::new(a)))),
            vec(inner.clone(), 1..4).prop_map(|items| node(ExprKind::Tuple(items))),
            vec((ident(), inner.clone()), 1..4).prop_map(|fields| node(ExprKind::Record(fields))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| node(ExprKind::Layout(at(1, a), at(1, b)))),
            (ident(), vec(generic_arg(), 0..3), args.clone())
                .prop_map(|(callee, generics, args)| node(ExprKind::Call { callee, generics, args })),
            (inner.clone(), ident(), vec(generic_arg(), 0..3), args).prop_map(
                |(recv, name, generics, args)| {
                    node(ExprKind::Method { recv: at(POSTFIX, recv), name, generics, args })
                }
            ),
            (inner.clone(), vec(index, 1..3))
                .prop_map(|(base, indices)| node(ExprKind::Index { base: at(POSTFIX, base), indices })),
            (inner, branch.clone(), option::of(branch)).prop_map(|(cond, then, otherwise)| node(
                ExprKind::If { cond: Box::new(cond), then, otherwise }
            )),
        ]
        .boxed()
    };
    leaf().prop_recursive(4, 24, 3, compound).boxed()
}

fn type_expr(value: BoxedStrategy<Expr>) -> BoxedStrategy<TypeExpr> {
    let above = value.prop_map(|value| if level(&value) == 0 { value } else { *at(COMPARISON + 1, value) });
    let above = above
        .prop_map(|value| match value.kind {
            ExprKind::Layout(a, b) => node(ExprKind::Layout(at(COMPARISON + 1, *a), at(COMPARISON + 1, *b))),
            _ => value,
        })
        .boxed();
    (ident(), vec(arg(above.clone()), 0..3), option::of(above.prop_map(|div| at(PREFIX, div))))
        .prop_map(|(name, args, div)| TypeExpr { name, args, div, span: Span::NONE })
        .boxed()
}

fn stmt(value: BoxedStrategy<Expr>, inner: BoxedStrategy<Option<Block>>) -> BoxedStrategy<Stmt> {
    let e = || value.clone();
    let ty = option::of(type_expr(value.clone()));
    let place = prop_oneof![
        ident().prop_map(|name| node(ExprKind::Name(name))),
        (e(), e()).prop_map(|(base, index)| {
            first_in_stmt(node(ExprKind::Index {
                base: at(POSTFIX, first_in_stmt(base)),
                indices: vec![index],
            }))
        })
    ]
    .prop_filter("a place", |place| matches!(place.kind, ExprKind::Name(_) | ExprKind::Index { .. }));
    let unroll = prop_oneof![Just(Unroll::Full), e().prop_map(Unroll::By)];
    let body = inner.prop_map(Option::unwrap_or_default).boxed();
    prop_oneof![
        (any::<bool>(), ident(), ty, e()).prop_map(|(mutable, name, ty, value)| StmtKind::Let {
            mutable,
            name,
            ty,
            value
        }),
        (
            place,
            option::of(bin_op().prop_filter("assigns", |op| level(&binary(
                *op,
                node(ExprKind::Underscore),
                node(ExprKind::Underscore)
            )) > COMPARISON)),
            e()
        )
            .prop_map(|(target, op, value)| StmtKind::Assign { target, op, value }),
        (ident(), e(), e(), option::of(e()), option::of(unroll), body.clone())
            .prop_map(|(var, lo, hi, step, unroll, body)| StmtKind::For { var, lo, hi, step, unroll, body }),
        (e(), body.clone()).prop_map(|(cond, body)| StmtKind::While { cond, body }),
        body.clone().prop_map(|body| StmtKind::Loop { body }),
        (ident(), vec(arg(e()), 0..3), body).prop_map(|(name, args, body)| StmtKind::Role {
            name,
            args,
            body
        }),
        prop_oneof![Just(StmtKind::Break), Just(StmtKind::Continue)],
        e().prop_map(|value| StmtKind::Expr(first_in_stmt(value))),
        option::of(e()).prop_map(StmtKind::Return),
    ]
    .prop_map(|kind| Stmt { kind, span: Span::NONE })
    .boxed()
}

fn block(value: BoxedStrategy<Expr>, inner: BoxedStrategy<Option<Block>>) -> BoxedStrategy<Block> {
    let last = value.clone().prop_map(|value| {
        let value = first_in_stmt(value);
        Box::new(if value.has_value() { value } else { *at(POSTFIX + 1, value) })
    });
    (vec(stmt(value, inner), 0..3), option::of(last))
        .prop_map(|(stmts, value)| Block { stmts, value })
        .boxed()
}

fn file() -> BoxedStrategy<File> {
    let body = || {
        let nested = Just(None).boxed();
        let nested = option::of(block(expr(), nested)).boxed();
        block(expr(), nested)
    };
    let generic =
        (ident(), type_expr(expr()), option::of(type_expr(expr()))).prop_map(|(name, ty, default)| {
            GenericParam {
                name,
                bound: ty.name,
                div: ty.div.map(|div| *div),
                default: default.and_then(|ty| ty.args.into_iter().next()).map(|arg| arg.value),
                span: Span::NONE,
            }
        });
    let generics = vec(generic, 0..3).boxed();
    let role = option::of(prop::sample::select(Role::ALL));
    let typed = (role, ident(), type_expr(expr()))
        .prop_map(|(role, name, ty)| Param { role, name, ty: Some(ty), span: Span::NONE })
        .boxed();
    let without_role = typed.clone().prop_map(|param| Param { role: None, ..param });
    let untyped = ident().prop_map(|name| Param { role: None, name, ty: None, span: Span::NONE });
    let attr = (ident(), vec(expr(), 0..3)).prop_map(|(name, args)| Attr { name, args, span: Span::NONE });
    let path = prop_oneof![
        ".{0,8}".prop_map(|file| UsePath::File(file.into())),
        vec(ident(), 1..4).prop_map(UsePath::Builtin)
    ];
    let item = prop_oneof![
        path.prop_map(|path| Item::Use(Use { path, span: Span::NONE })),
        (ident(), expr()).prop_map(|(name, value)| Item::Const(Const { name, value, span: Span::NONE })),
        (ident(), generics.clone(), vec(typed.clone(), 0..3), vec(attr, 0..3), body()).prop_map(
            |(name, generics, params, attrs, body)| Item::Kernel(Kernel {
                name,
                generics,
                params,
                attrs,
                body,
                span: Span::NONE
            })
        ),
        (
            ident(),
            generics,
            vec(prop_oneof![without_role, untyped], 0..3),
            option::of(type_expr(expr())),
            body()
        )
            .prop_flat_map(|(name, generics, params, ret, body)| {
                let f = Function { name, generics, params, ret, body, span: Span::NONE };
                prop_oneof![Just(Item::Function(f.clone())), Just(Item::Reference(f))]
            }),
    ];
    vec(item, 0..4).prop_map(|items| File { items }).boxed()
}

/// The tree as text, without its spans.
fn without_spans(tree: &impl std::fmt::Debug) -> String {
    let text = format!("{tree:?}");
    let mut parts = text.split("span: Span {");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once('}').map_or(part, |(_, rest)| rest))
}

/// The direct subexpressions of an expression, except those in blocks.
fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Unary(_, a) | ExprKind::Paren(a) => vec![a],
        ExprKind::Binary(_, a, b) | ExprKind::Layout(a, b) | ExprKind::Range(a, b) => vec![a, b],
        ExprKind::Tuple(items) => items.iter().collect(),
        ExprKind::Call { generics, args, .. } => generics.iter().chain(args).map(|arg| &arg.value).collect(),
        ExprKind::Method { recv, generics, args, .. } => {
            std::iter::once(&**recv).chain(generics.iter().chain(args).map(|arg| &arg.value)).collect()
        }
        ExprKind::Index { base, indices } => std::iter::once(&**base).chain(indices).collect(),
        ExprKind::If { cond, .. } => vec![cond],
        _ => Vec::new(),
    }
}

fn check_spans(text: &str, expr: &Expr) -> Result<(), TestCaseError> {
    let own = &text[expr.span.start as usize..expr.span.end as usize];
    if !matches!(expr.kind, ExprKind::Range(..)) {
        let again = parse_expr(0, own).map_err(|e| TestCaseError::fail(format!("{own}: {e:?}")))?;
        prop_assert_eq!(without_spans(&again), without_spans(expr), "{}", own);
    }
    children(expr).into_iter().try_for_each(|child| check_spans(text, child))
}

/// The text in which comments and line breaks replace some of its spaces.
fn disturbed(text: &str, places: &[(usize, &str)]) -> String {
    let spaces: Vec<usize> = text.match_indices(' ').map(|(at, _)| at).collect();
    let mut places: Vec<(usize, &str)> = places
        .iter()
        .filter_map(|(n, piece)| Some((*spaces.get(n % spaces.len().max(1))?, *piece)))
        .collect();
    places.sort_unstable();
    places.into_iter().rev().fold(text.to_owned(), |mut text, (at, piece)| {
        text.insert_str(at, piece);
        text
    })
}

/// The positions at which pieces are inserted into a text.
fn places() -> BoxedStrategy<Vec<(usize, &'static str)>> {
    const PIECES: &[&str] = &[
        "\n",
        "\n\n\n",
        " // one\n",
        "\n// two\n",
        "\n\n// three\n\n",
        " /* four */ ",
        "/* five */\n",
        " /* a\n  b */",
        "    ",
    ];
    vec((0..1000usize, prop::sample::select(PIECES)), 0..12).boxed()
}

/// Checks that a text that parses is formatted to a text with the same meaning, which the formatter
/// does not change again.
fn check_format(text: &str) -> Result<(), TestCaseError> {
    let Ok(tree) = parse(0, text) else { return Ok(()) };
    let once = format(0, text).map_err(|e| TestCaseError::fail(format!("{text}\n{e:?}")))?;
    let again = parse(0, &once).map_err(|e| TestCaseError::fail(format!("{once}\n{e:?}")))?;
    prop_assert_eq!(without_spans(&again), without_spans(&tree), "{}", once);
    let twice = format(0, &once).map_err(|e| TestCaseError::fail(format!("{once}\n{e:?}")))?;
    prop_assert_eq!(&twice, &once, "of\n{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_formatted_file_has_the_same_meaning_and_is_stable(file in file(), places in places()) {
        check_format(&disturbed(&print(&file), &places))?;
    }

    #[test]
    fn a_kernel_file_with_comments_anywhere_is_formatted(places in places()) {
        for text in [
            include_str!("../../../examples/allreduce_two_shot.weft"),
            include_str!("../../../warpweft/src/library/gemm_comm.weft"),
        ] {
            check_format(&disturbed(text, &places))?;
        }
    }

    #[test]
    fn a_printed_file_parses_to_itself(file in file()) {
        let text = print(&file);
        let parsed = parse(0, &text).map_err(|e| TestCaseError::fail(format!("{text}\n{e:?}")))?;
        prop_assert_eq!(without_spans(&parsed), without_spans(&file), "{}", text);
        prop_assert_eq!(print(&parsed), text);
    }

    #[test]
    fn the_span_of_an_expression_contains_its_text(expr in expr()) {
        let text = expr.to_string();
        let parsed = parse_expr(0, &text).map_err(|e| TestCaseError::fail(format!("{text}\n{e:?}")))?;
        prop_assert_eq!(parsed.span, Span::new(0, 0, text.len() as u32));
        check_spans(&text, &parsed)?;
    }
}
