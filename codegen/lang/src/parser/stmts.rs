//! Blocks and statements.

use super::exprs::{conditional, expr, joined};
use super::{Res, Tokens, starts_stmt, token, types, word};
use crate::ast::{BinOp, Block, Expr, ExprKind, Stmt, StmtKind, Unroll};
use crate::codes::syntax as code;
use crate::lexer::Kind;
use nom::Parser;
use nom::branch::alt;
use nom::combinator::opt;
use nom::sequence::preceded;
use weft_ir::diag::Diagnostic;

/// The assignments, and the operator that each applies first.
const ASSIGN: &[(Kind, Option<BinOp>)] = &[
    (Kind::Assign, None),
    (Kind::AddAssign, Some(BinOp::Add)),
    (Kind::SubAssign, Some(BinOp::Sub)),
    (Kind::MulAssign, Some(BinOp::Mul)),
    (Kind::DivAssign, Some(BinOp::Div)),
    (Kind::RemAssign, Some(BinOp::Rem)),
    (Kind::AndAssign, Some(BinOp::BitAnd)),
    (Kind::OrAssign, Some(BinOp::BitOr)),
    (Kind::XorAssign, Some(BinOp::BitXor)),
    (Kind::ShlAssign, Some(BinOp::Shl)),
    (Kind::ShrAssign, Some(BinOp::Shr)),
];

/// What a block is made of.
#[expect(clippy::large_enum_variant, reason = "lives for a moment")]
enum Piece {
    Stmt(Stmt),
    /// The last expression, without `;`.
    Value(Expr),
}

/// `{ ... }`; `place` says where it stands: `after the condition`.
pub(super) fn block<'a>(i: Tokens<'a>, place: &str) -> Res<'a, Block> {
    let (rest, _) = i.need(Kind::LBrace, place)?;
    rest.nested(|rest| block_rest(rest, i))
}

/// What follows the `{` at `open`.
fn block_rest<'a>(i: Tokens<'a>, open: Tokens<'a>) -> Res<'a, Block> {
    let mut block = Block::default();
    let mut rest = i;
    loop {
        match rest.kind() {
            Kind::RBrace => return Ok((rest.skip(1), block)),
            Kind::Use | Kind::Const => {
                nested_item(rest);
                rest = resync(rest, rest.at + 1);
                continue;
            }
            Kind::End | Kind::Kernel | Kind::Fn => return rest.fail(open_block(rest, open)),
            _ => {}
        }
        match piece(rest) {
            Ok((after, Piece::Stmt(stmt))) => {
                block.stmts.push(stmt);
                rest = after;
            }
            Ok((after, Piece::Value(value))) => {
                block.value = Some(Box::new(value));
                rest = after;
            }
            Err(fault) => {
                rest = resync(rest, super::stopped_at(&fault, rest));
                // That the block is open too is clear from the error before.
                if rest.ctx.full() || matches!(rest.kind(), Kind::End | Kind::Kernel | Kind::Fn) {
                    return rest.give_up();
                }
            }
        }
    }
}

fn nested_item(i: Tokens<'_>) {
    let message = format!("{} inside a block", i.found());
    i.report(
        Diagnostic::error(code::NESTED_ITEM, i.span(), message)
            .label("only at the top of a file")
            .help("use `let` here, or move this out of the block"),
    );
}

fn open_block(i: Tokens<'_>, open: Tokens<'_>) -> Diagnostic {
    i.expected(code::UNCLOSED, "`}`")
        .label("expected `}` before this")
        .related(open.span(), "this block is not closed")
}

/// Where the next statement may begin after one that failed at token `at`: behind its `;` or its block, or at a
/// keyword that begins a statement, or at the `}` that closes the block.
fn resync(start: Tokens<'_>, at: usize) -> Tokens<'_> {
    let mut i = Tokens { at: at.max(start.at), ..start };
    let mut depth = 0usize;
    loop {
        match i.kind() {
            Kind::End | Kind::Kernel | Kind::Fn => return i,
            Kind::LBrace => depth += 1,
            Kind::RBrace if depth == 0 => return i,
            Kind::RBrace => {
                depth -= 1;
                if depth == 0
                    && !matches!(i.nth(1).kind, Kind::Else | Kind::Semi | Kind::RParen | Kind::Comma)
                {
                    return i.skip(1);
                }
            }
            Kind::Semi if depth == 0 => return i.skip(1),
            kind if depth == 0 && i.at > start.at && starts_stmt(kind) && kind != Kind::If => return i,
            _ => {}
        }
        i = i.skip(1);
    }
}

fn piece(i: Tokens<'_>) -> Res<'_, Piece> {
    if i.kind() == Kind::Semi {
        let error = i.expected(code::EXPECTED_EXPRESSION, "a statement");
        i.report(error.help("remove this `;`"));
        return i.skip(1).give_up();
    }
    alt((
        let_stmt.map(Piece::Stmt),
        for_stmt.map(Piece::Stmt),
        while_stmt.map(Piece::Stmt),
        return_stmt.map(Piece::Stmt),
        if_stmt,
        assignment_or_expr,
    ))
    .parse(i)
}

fn let_stmt(i: Tokens<'_>) -> Res<'_, Stmt> {
    let (rest, _) = token(Kind::Let)(i)?;
    let (rest, mutable) = opt(token(Kind::Mut)).parse(rest)?;
    let (rest, name) = rest.name("of a variable")?;
    let (rest, ty) = types::annotation(rest)?;
    let (rest, _) = rest.need(Kind::Assign, "and a value after the variable")?;
    let (rest, value) = expr(rest)?;
    let (rest, ()) = rest.semicolon(&format!("`let {}`", name.name))?;
    Ok((rest, stmt(i, rest, StmtKind::Let { mutable: mutable.is_some(), name, ty, value })))
}

fn for_stmt(i: Tokens<'_>) -> Res<'_, Stmt> {
    let (rest, _) = token(Kind::For)(i)?;
    let (rest, var) = rest.name("of the loop variable")?;
    let (rest, _) = rest.need(Kind::In, "after the loop variable")?;
    let (rest, lo) = expr(rest)?;
    let (rest, _) = rest.need(Kind::DotDot, "after the first value of the loop")?;
    let (rest, hi) = expr(rest)?;
    let (rest, step) = opt(preceded(word("step"), expr)).parse(rest)?;
    let (head, unroll) = opt(unroll).parse(rest)?;
    let (rest, body) = block(head, "after the head of the loop")?;
    Ok((rest, stmt(i, head, StmtKind::For { var, lo, hi, step, unroll, body })))
}

fn unroll(i: Tokens<'_>) -> Res<'_, Unroll> {
    let (rest, _) = word("unroll")(i)?;
    if rest.kind() != Kind::LParen {
        return Ok((rest, Unroll::Full));
    }
    let (rest, by) = expr(rest.skip(1))?;
    let (rest, _) = rest.need(Kind::RParen, "after the unroll factor")?;
    Ok((rest, Unroll::By(by)))
}

fn while_stmt(i: Tokens<'_>) -> Res<'_, Stmt> {
    let (rest, _) = token(Kind::While)(i)?;
    let (head, cond) = expr(rest)?;
    let (rest, body) = block(head, "after the condition")?;
    Ok((rest, stmt(i, head, StmtKind::While { cond, body })))
}

fn return_stmt(i: Tokens<'_>) -> Res<'_, Stmt> {
    let (rest, _) = token(Kind::Return)(i)?;
    let (rest, value) = match rest.kind() {
        Kind::Semi | Kind::RBrace => (rest, None),
        _ => expr(rest).map(|(rest, value)| (rest, Some(value)))?,
    };
    let (rest, ()) = rest.semicolon("`return`")?;
    Ok((rest, stmt(i, rest, StmtKind::Return(value))))
}

/// An `if` that begins a statement ends it, as its blocks do: what follows is not its operator.
fn if_stmt(i: Tokens<'_>) -> Res<'_, Piece> {
    if i.kind() != Kind::If {
        return i.not_here();
    }
    let (rest, value) = i.nested(conditional)?;
    if rest.kind() == Kind::Semi {
        let rest = rest.skip(1);
        return Ok((rest, Piece::Stmt(stmt(i, rest, StmtKind::Expr(value)))));
    }
    if rest.kind() == Kind::RBrace && value.has_value() {
        return Ok((rest, Piece::Value(value)));
    }
    Ok((rest, Piece::Stmt(stmt(i, rest, StmtKind::Expr(value)))))
}

fn assignment_or_expr(i: Tokens<'_>) -> Res<'_, Piece> {
    let (rest, target) = expr(i)?;
    let (kind, after) = joined(rest);
    let Some((_, op)) = ASSIGN.iter().find(|row| row.0 == kind) else {
        if rest.kind() == Kind::RBrace {
            return Ok((rest, Piece::Value(target)));
        }
        let (rest, ()) = rest.semicolon("the expression")?;
        return Ok((rest, Piece::Stmt(stmt(i, rest, StmtKind::Expr(target)))));
    };
    if !matches!(target.kind, ExprKind::Name(_) | ExprKind::Index { .. }) {
        rest.ctx.report(
            Diagnostic::error(code::NOT_A_PLACE, target.span, "assignment to something that is not a place")
                .label("not a name or an indexed tensor")
                .help("assign to `x` or `t[i, _]`; to compare, write `==`"),
        );
    }
    let (rest, value) = expr(after)?;
    let (rest, ()) = rest.semicolon("the assignment")?;
    Ok((rest, Piece::Stmt(stmt(i, rest, StmtKind::Assign { target, op: *op, value }))))
}

fn stmt(start: Tokens<'_>, end: Tokens<'_>, kind: StmtKind) -> Stmt {
    Stmt { kind, span: end.since(start) }
}
