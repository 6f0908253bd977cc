//! Tests of the parser: the trees that texts have.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use weft_lang::ast::*;
use weft_lang::print::print;
use weft_lang::{parse, parse_expr};

const TWO_SHOT: &str = include_str!("weft/two_shot.weft");
const RMS_NORM: &str = include_str!("weft/rms_norm.weft");

/// The tree of an expression as text: `[operator operands]`.
fn tree(expr: &Expr) -> String {
    let args = |head: &str, generics: &[Arg], args: &[Arg]| {
        let arg = |arg: &Arg| {
            arg.name.iter().map(|name| format!("{name}=")).collect::<String>() + &tree(&arg.value)
        };
        let list = |args: &[Arg]| args.iter().map(arg).collect::<Vec<_>>().join(" ");
        format!("[{head} <{}> {}]", list(generics), list(args))
    };
    let list = |head: &str, items: &[Expr]| {
        format!("[{head} {}]", items.iter().map(tree).collect::<Vec<_>>().join(" "))
    };
    match &expr.kind {
        ExprKind::Unary(op, a) => format!("[{op} {}]", tree(a)),
        ExprKind::Binary(op, a, b) => format!("[{op} {} {}]", tree(a), tree(b)),
        ExprKind::Paren(a) => format!("[paren {}]", tree(a)),
        ExprKind::Tuple(items) => list("tuple", items),
        ExprKind::Layout(a, b) => format!("[: {} {}]", tree(a), tree(b)),
        ExprKind::Range(a, b) => format!("[.. {} {}]", tree(a), tree(b)),
        ExprKind::Call { callee, generics, args: values } => args(&callee.name, generics, values),
        ExprKind::Method { recv, name, generics, args: values } => {
            args(&format!("{} .{name}", tree(recv)), generics, values)
        }
        ExprKind::Index { base, indices } => list(&format!("at {}", tree(base)), indices),
        ExprKind::If { cond, .. } => format!("[if {}]", tree(cond)),
        _ => expr.to_string(),
    }
}

fn trees(texts: &[&str]) -> String {
    let line = |text: &&str| format!("{text}  =>  {}\n", tree(&parse_expr(0, text).expect(text)));
    texts.iter().map(line).collect()
}

#[test]
fn operators_group_by_precedence_and_from_the_left() {
    insta::assert_snapshot!(trees(&[
        "a - b - c",
        "a + b * c % d",
        "a || b && c == d | e ^ f & g << h + i * j",
        "i * j + h >> g & f ^ e | d >= c && b || a",
        "-a.f()[0] * !b",
        "- - !a",
        "a - -1",
        "(a + b) * c",
        "a < b && b < c",
    ]), @r#"
    a - b - c  =>  [- [- a b] c]
    a + b * c % d  =>  [+ a [% [* b c] d]]
    a || b && c == d | e ^ f & g << h + i * j  =>  [|| a [&& b [== c [| d [^ e [& f [<< g [+ h [* i j]]]]]]]]]
    i * j + h >> g & f ^ e | d >= c && b || a  =>  [|| [&& [>= [| [^ [& [>> [+ [* i j] h] g] f] e] d] c] b] a]
    -a.f()[0] * !b  =>  [* [- [at [a .f <> ] 0]] [! b]]
    - - !a  =>  [- [- [! a]]]
    a - -1  =>  [- a [- 1]]
    (a + b) * c  =>  [* [paren [+ a b]] c]
    a < b && b < c  =>  [&& [< a b] [< b c]]
    "#);
}

#[test]
fn a_layout_binds_most_loosely() {
    insta::assert_snapshot!(trees(&[
        "(4, (2, 2)):(1, (8, 4))",
        "N / 2:1",
        "a || b : c || d",
        "f(4:1, n = 8:2)",
        "(4:1, 2)",
        "if a : b {}",
    ]), @r#"
    (4, (2, 2)):(1, (8, 4))  =>  [: [tuple 4 [tuple 2 2]] [tuple 1 [tuple 8 4]]]
    N / 2:1  =>  [: [/ N 2] 1]
    a || b : c || d  =>  [: [|| a b] [|| c d]]
    f(4:1, n = 8:2)  =>  [f <> [: 4 1] n=[: 8 2]]
    (4:1, 2)  =>  [tuple [: 4 1] 2]
    if a : b {}  =>  [if [: a b]]
    "#);
}

#[test]
fn tuples_and_parentheses() {
    insta::assert_snapshot!(trees(&["()", "(a)", "(a,)", "(a, b)", "(a, b,)", "((a))", "_"]), @r#"
    ()  =>  [tuple ]
    (a)  =>  [paren a]
    (a,)  =>  [tuple a]
    (a, b)  =>  [tuple a b]
    (a, b,)  =>  [tuple a b]
    ((a))  =>  [paren [paren a]]
    _  =>  _
    "#);
}

#[test]
fn generic_calls_are_distinguished_from_comparisons() {
    insta::assert_snapshot!(trees(&[
        "f<add, acc = f32>(x)",
        "f<-1, _, true,>(x)",
        "size<1>(t) < 4",
        "a < b",
        "a < b + 1",
        "a < (b)",
        "a < -1",
        "a < b >> (c)",
        "f(a < b, c)",
        "f(a < b, c > (d))",
        "f(a < b, c >= (d))",
        "x.to<T>()",
        "x.f(a = 1, b == 2,)",
        "a<b>(c)<d",
    ]), @r#"
    f<add, acc = f32>(x)  =>  [f <add acc=f32> x]
    f<-1, _, true,>(x)  =>  [f <[- 1] _ true> x]
    size<1>(t) < 4  =>  [< [size <1> t] 4]
    a < b  =>  [< a b]
    a < b + 1  =>  [< a [+ b 1]]
    a < (b)  =>  [< a [paren b]]
    a < -1  =>  [< a [- 1]]
    a < b >> (c)  =>  [< a [>> b [paren c]]]
    f(a < b, c)  =>  [f <> [< a b] c]
    f(a < b, c > (d))  =>  [f <> [a <b c> d]]
    f(a < b, c >= (d))  =>  [f <> [< a b] [>= c [paren d]]]
    x.to<T>()  =>  [x .to <T> ]
    x.f(a = 1, b == 2,)  =>  [x .f <> a=1 [== b 2]]
    a<b>(c)<d  =>  [< [a <b> c] d]
    "#);
}

#[test]
fn indices() {
    insta::assert_snapshot!(trees(&["t[i, _]", "t[0..n, 1]", "t[(_, 1)][2]", "f(x)[a..b + 1,]", "t[1].f()"]), @r#"
    t[i, _]  =>  [at t i _]
    t[0..n, 1]  =>  [at t [.. 0 n] 1]
    t[(_, 1)][2]  =>  [at [at t [tuple _ 1]] 2]
    f(x)[a..b + 1,]  =>  [at [f <> x] [.. a [+ b 1]]]
    t[1].f()  =>  [[at t 1] .f <> ]
    "#);
}

#[test]
fn literals() {
    insta::assert_snapshot!(trees(&[
        "0", "1_000", "0xFf", "0b1_01", "9223372036854775807", "1.5", "1e-5", "2.5E+3", "1.to<f32>()", "inf", "true", "\"a\\n\\\"b\\\\ é\"",
    ]), @r#"
    0  =>  0
    1_000  =>  1000
    0xFf  =>  255
    0b1_01  =>  5
    9223372036854775807  =>  9223372036854775807
    1.5  =>  1.5
    1e-5  =>  1e-5
    2.5E+3  =>  2500.0
    1.to<f32>()  =>  [1 .to <f32> ]
    inf  =>  inf
    true  =>  true
    "a\n\"b\\ é"  =>  "a\n\"b\\ é"
    "#);
}

#[test]
fn white_space_and_comments_do_not_matter() {
    let texts =
        ["f ( a<b , 1 )", "f(a<b,1)", "\u{feff}f(\r\n\ta < b // c\n , 1 /* /* */ x */ )", "f(a/**/<b,1)//"];
    for text in texts {
        assert_eq!(tree(&parse_expr(0, text).expect(text)), "[f <> [< a b] 1]", "{text:?}");
    }
}

/// The statements of a kernel with this body, one per line, followed by the value of the block.
fn body(text: &str) -> String {
    let text = format!("kernel k() {{ {text} }}");
    let file = parse(0, &text).expect(&text);
    let [Item::Kernel(kernel)] = &file.items[..] else { panic!("{file:?}") };
    let stmt = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Let { mutable, name, ty, value } => {
            let ty = ty.as_ref().map(|ty| ty.to_string());
            format!("let mut={mutable} {name} {ty:?} {}", tree(value))
        }
        StmtKind::Assign { target, op, value } => format!("{:?}= {} {}", op, tree(target), tree(value)),
        StmtKind::For { var, lo, hi, step, unroll, body } => {
            let unroll = match unroll {
                None => "no".into(),
                Some(Unroll::Full) => "full".into(),
                Some(Unroll::By(n)) => tree(n),
            };
            let step = step.as_ref().map(tree);
            format!(
                "for {var} {} {} step={step:?} unroll={unroll} stmts={}",
                tree(lo),
                tree(hi),
                body.stmts.len()
            )
        }
        StmtKind::While { cond, body } => format!("while {} stmts={}", tree(cond), body.stmts.len()),
        StmtKind::Loop { body } => format!("loop stmts={}", body.stmts.len()),
        StmtKind::Role { name, args, body } => {
            format!("role {name} {} stmts={}", args.len(), body.stmts.len())
        }
        StmtKind::Break => "break".into(),
        StmtKind::Continue => "continue".into(),
        StmtKind::Expr(value) => format!("expr {}", tree(value)),
        StmtKind::Return(value) => format!("return {:?}", value.as_ref().map(tree)),
    };
    let mut lines: Vec<_> = kernel.body.stmts.iter().map(stmt).collect();
    lines.extend(kernel.body.value.iter().map(|value| format!("value {}", tree(value))));
    lines.join("\n")
}

#[test]
fn statements() {
    insta::assert_snapshot!(body(
        "let mut x: symm<T, (N):(1)>= a; let n: int % 8 = 4; let l = 4:1;
         x = 1; t[_, i] += 2; x >>= 1; x <<= 1; x |= a == b;
         for i in 0..n {} for i in a + 1..f(b) step 2 unroll(4) { f(); } for step in 0..step step step unroll {}
         while a < b { f(); }
         return; return x;
         f(x)"
    ), @r#"
    let mut=true x Some("symm<T, (N):(1)>") a
    let mut=false n Some("int % 8") 4
    let mut=false l None [: 4 1]
    None= x 1
    Some(Add)= [at t _ i] 2
    Some(Shr)= x 1
    Some(Shl)= x 1
    Some(BitOr)= x [== a b]
    for i 0 n step=None unroll=no stmts=0
    for i [+ a 1] [f <> b] step=Some("2") unroll=4 stmts=1
    for step 0 step step=Some("step") unroll=full stmts=0
    while [< a b] stmts=1
    return None
    return Some("x")
    value [f <> x]
    "#);
}

#[test]
fn conditionals_as_statements_and_as_values() {
    insta::assert_snapshot!(body("if a { f(); } if b { 1 } else { 2 } (c); if d { 1 } else { 2 }"), @r#"
    expr [if a]
    expr [if b]
    expr [paren c]
    value [if d]
    "#);
    insta::assert_snapshot!(body("if a { 1 } else { 2 };"), @"expr [if a]");
    insta::assert_snapshot!(body("if a { f(); } else if b { g(); }"), @"expr [if a]");
    insta::assert_snapshot!(body("let x = if a { 1 } else { 2 } + 3;"), @"let mut=false x None [+ [if a] 3]");
    insta::assert_snapshot!(body("if a {} -x"), @r#"
    expr [if a]
    value [- x]
    "#);
}

#[test]
fn else_if_is_a_block_with_one_conditional() {
    assert_eq!(
        body("if a { 1 } else if b { 2 } else { 3 }"),
        body("if a { 1 } else { if b { 2 } else { 3 } }")
    );
    let expr = parse_expr(0, "if a { 1 } else if b { 2 } else { 3 }").unwrap();
    let ExprKind::If { otherwise: Some(otherwise), .. } = &expr.kind else { panic!("{expr:?}") };
    assert_eq!(otherwise.value.as_deref().map(tree).as_deref(), Some("[if b]"));
}

#[test]
fn kernels_read_as_they_are_printed() {
    for text in [TWO_SHOT, RMS_NORM] {
        let printed = print(&parse(0, text).unwrap());
        assert_eq!(print(&parse(0, &printed).unwrap()), printed);
    }
    insta::assert_snapshot!(print(&parse(0, RMS_NORM).unwrap()));
}

#[test]
fn the_tree_of_a_small_file() {
    let text = "use weft::tiles;\nfn f<T: float = f32>(x, n: int % 8) -> T { x[n] }\n";
    let file = parse(3, text).unwrap();
    let [Item::Use(used), Item::Function(f)] = &file.items[..] else { panic!("{file:?}") };
    let at = |span: weft_ir::diag::Span| &text[span.start as usize..span.end as usize];
    let UsePath::Builtin(path) = &used.path else { panic!("{used:?}") };
    assert_eq!(path.iter().map(|segment| at(segment.span)).collect::<Vec<_>>(), ["weft", "tiles"]);
    assert_eq!((at(used.span), used.span.file), ("use weft::tiles;", 3));
    assert_eq!(at(f.span), "fn f<T: float = f32>(x, n: int % 8) -> T");
    let [t] = &f.generics[..] else { panic!("{f:?}") };
    let default = t.default.as_ref().map(tree);
    assert_eq!((&*t.bound.name, default.as_deref(), &t.div), ("float", Some("f32"), &None));
    let [x, n] = &f.params[..] else { panic!("{f:?}") };
    let ty = n.ty.as_ref().unwrap();
    assert_eq!((at(x.span), &x.ty, at(n.span), at(ty.span)), ("x", &None, "n: int % 8", "int % 8"));
    assert_eq!(ty.div.as_deref().map(tree).as_deref(), Some("8"));
    assert_eq!(f.ret.as_ref().map(|ty| at(ty.span)), Some("T"));
    let value = f.body.value.as_ref().unwrap();
    assert_eq!((tree(value), at(value.span), f.body.stmts.len()), ("[at x n]".into(), "x[n]", 0));
}

#[test]
fn spans_of_heads_and_statements() {
    let text = "kernel k<N: int>(x: f32) block(32) { let y = x ; for i in 0..N unroll { f(); } }";
    let file = parse(0, text).unwrap();
    let [Item::Kernel(kernel)] = &file.items[..] else { panic!("{file:?}") };
    let at = |span: weft_ir::diag::Span| &text[span.start as usize..span.end as usize];
    assert_eq!(at(kernel.span), "kernel k<N: int>(x: f32) block(32)");
    assert_eq!(at(kernel.generics[0].span), "N: int");
    assert_eq!(at(kernel.params[0].span), "x: f32");
    assert_eq!(at(kernel.attrs[0].span), "block(32)");
    let stmts: Vec<_> = kernel.body.stmts.iter().map(|stmt| at(stmt.span)).collect();
    assert_eq!(stmts, ["let y = x ;", "for i in 0..N unroll"]);
}

#[test]
fn fields_are_no_methods() {
    for (text, expected) in [
        ("r.x + s.y[1].f()", "[+ r.x [[at s.y 1] .f <> ]]"),
        ("r.x < y", "[< r.x y]"),
        ("r.to<f32>()", "[r .to <f32> ]"),
        ("f((x = 1, y = (a, b)))", "[f <> (x = 1, y = (a, b))]"),
    ] {
        assert_eq!(tree(&parse_expr(0, text).expect(text)), expected, "{text}");
    }
}
