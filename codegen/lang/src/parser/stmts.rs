//! Parsers of blocks and statements.

use super::exprs::{conditional, expr, joined};
use super::{Res, Tokens, starts_stmt, token, types, word};
use crate::ast::{BinOp, Block, Expr, ExprKind, Stmt, StmtKind, Unroll};
use crate::lexer::TokenKind;
use nom::Parser;
use nom::combinator::opt;
use nom::sequence::preceded;

/// The assignment operators, with the infix operator that each applies.
const ASSIGN: &[(TokenKind, Option<BinOp>)] = &[
    (TokenKind::Assign, None),
    (TokenKind::AddAssign, Some(BinOp::Add)),
    (TokenKind::SubAssign, Some(BinOp::Sub)),
    (TokenKind::MulAssign, Some(BinOp::Mul)),
    (TokenKind::DivAssign, Some(BinOp::Div)),
    (TokenKind::RemAssign, Some(BinOp::Rem)),
    (TokenKind::AndAssign, Some(BinOp::BitAnd)),
    (TokenKind::OrAssign, Some(BinOp::BitOr)),
    (TokenKind::XorAssign, Some(BinOp::BitXor)),
    (TokenKind::ShlAssign, Some(BinOp::Shl)),
    (TokenKind::ShrAssign, Some(BinOp::Shr)),
];

/// Parses `{ ... }`. `place` describes its position: `after the condition`.
pub(super) fn block<'a>(i: Tokens<'a>, place: &str) -> Res<'a, Block> {
    let (rest, _) = i.need(TokenKind::LBrace, place)?;
    rest.nested(|rest| block_rest(rest, i))
}

/// Parses the rest of a block after the `{` at `open`.
fn block_rest<'a>(i: Tokens<'a>, open: Tokens<'a>) -> Res<'a, Block> {
    let mut block = Block::default();
    let mut rest = i;
    loop {
        match rest.kind() {
            TokenKind::RBrace => return Ok((rest.skip(1), block)),
            TokenKind::Use | TokenKind::Const => {
                rest.nested_item();
                rest = resync(rest, rest.at + 1);
                continue;
            }
            TokenKind::End | TokenKind::Kernel | TokenKind::Fn => return rest.open_block(open),
            _ => {}
        }
        match stmt(rest, &mut block) {
            Ok((after, ())) => rest = after,
            Err(fault) => {
                rest = resync(rest, super::stopped_at(&fault, rest));
                // The earlier error already shows that the block is open.
                if rest.ctx.full()
                    || matches!(rest.kind(), TokenKind::End | TokenKind::Kernel | TokenKind::Fn)
                {
                    return rest.give_up();
                }
            }
        }
    }
}

/// The position at which the next statement can begin after one that failed at token `at`: after
/// its `;` or its block, at a keyword that begins a statement, or at the `}` that closes the block.
fn resync(start: Tokens<'_>, at: usize) -> Tokens<'_> {
    let mut i = Tokens { at: at.max(start.at), ..start };
    let mut depth = 0usize;
    loop {
        match i.kind() {
            TokenKind::End | TokenKind::Kernel | TokenKind::Fn => return i,
            TokenKind::LBrace => depth += 1,
            TokenKind::RBrace if depth == 0 => return i,
            TokenKind::RBrace => {
                depth -= 1;
                if depth == 0
                    && !matches!(
                        i.nth(1).kind,
                        TokenKind::Else | TokenKind::Semi | TokenKind::RParen | TokenKind::Comma
                    )
                {
                    return i.skip(1);
                }
            }
            TokenKind::Semi if depth == 0 => return i.skip(1),
            kind if depth == 0 && i.at > start.at && starts_stmt(kind) && kind != TokenKind::If => return i,
            _ => {}
        }
        i = i.skip(1);
    }
}

/// Parses a statement and appends it to `block`, or sets the value of the block.
fn stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    match i.kind() {
        TokenKind::Let => let_stmt(i, block),
        TokenKind::For => for_stmt(i, block),
        TokenKind::While => while_stmt(i, block),
        TokenKind::Loop => loop_stmt(i, block),
        TokenKind::Break => jump_stmt(i, block, StmtKind::Break, "`break`"),
        TokenKind::Continue => jump_stmt(i, block, StmtKind::Continue, "`continue`"),
        TokenKind::Return => return_stmt(i, block),
        TokenKind::If => if_stmt(i, block),
        TokenKind::Semi => {
            i.empty_stmt();
            Ok((i.skip(1), ()))
        }
        TokenKind::Ident if i.text(i.first()) == "role" && i.nth(1).kind == TokenKind::Ident => {
            role_stmt(i, block)
        }
        _ => assignment_or_expr(i, block),
    }
}

fn let_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (rest, mutable) = opt(token(TokenKind::Mut)).parse(i.skip(1))?;
    let (rest, name) = rest.name("of a variable")?;
    let (rest, ty) = types::annotation(rest)?;
    let (rest, _) = rest.need(TokenKind::Assign, "and a value after the variable")?;
    let (rest, value) = expr(rest)?;
    let (rest, ()) = rest.semicolon(format_args!("`let {name}`"))?;
    push(block, i, rest, StmtKind::Let { mutable: mutable.is_some(), name, ty, value })
}

fn for_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (head, mut stmt) = for_head(i)?;
    let (rest, inner) = self::block(head, "after the head of the loop")?;
    if let StmtKind::For { body, .. } = &mut stmt.kind {
        *body = inner;
    }
    block.stmts.push(*stmt);
    Ok((rest, ()))
}

/// Parses a `for` up to its body.
fn for_head(i: Tokens<'_>) -> Res<'_, Box<Stmt>> {
    let (rest, var) = i.skip(1).name("of the loop variable")?;
    let (rest, _) = rest.need(TokenKind::In, "after the loop variable")?;
    let (rest, lo) = expr(rest)?;
    let (rest, _) = rest.need(TokenKind::DotDot, "after the first value of the loop")?;
    let (rest, hi) = expr(rest)?;
    let (rest, step) = opt(preceded(word("step"), expr)).parse(rest)?;
    let (head, unroll) = opt(unroll).parse(rest)?;
    let kind = StmtKind::For { var, lo, hi, step, unroll, body: Block::default() };
    Ok((head, Box::new(Stmt { kind, span: head.since(i) })))
}

fn unroll(i: Tokens<'_>) -> Res<'_, Unroll> {
    let (rest, _) = word("unroll")(i)?;
    if rest.kind() != TokenKind::LParen {
        return Ok((rest, Unroll::Full));
    }
    let (rest, by) = expr(rest.skip(1))?;
    let (rest, _) = rest.need(TokenKind::RParen, "after the unroll factor")?;
    Ok((rest, Unroll::By(by)))
}

fn while_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (head, cond) = expr(i.skip(1))?;
    let (rest, body) = self::block(head, "after the condition")?;
    push(block, i, head, StmtKind::While { cond, body })?;
    Ok((rest, ()))
}

fn loop_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let head = i.skip(1);
    let (rest, body) = self::block(head, "after `loop`")?;
    push(block, i, head, StmtKind::Loop { body })?;
    Ok((rest, ()))
}

/// Parses `role name(threads, regs = n) { ... }`. Elsewhere `role` is a name.
fn role_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (rest, name) = i.skip(1).name("of a role")?;
    let (rest, _) = rest.need(TokenKind::LParen, "and threads after the name of a role")?;
    let (head, args) = types::args(rest)?;
    let (rest, body) = self::block(head, "after the head of the role")?;
    push(block, i, head, StmtKind::Role { name, args, body })?;
    Ok((rest, ()))
}

fn jump_stmt<'a>(i: Tokens<'a>, block: &mut Block, kind: StmtKind, name: &str) -> Res<'a, ()> {
    let (rest, ()) = i.skip(1).semicolon(name)?;
    push(block, i, rest, kind)
}

fn return_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let mut rest = i.skip(1);
    let mut value = None;
    if !matches!(rest.kind(), TokenKind::Semi | TokenKind::RBrace) {
        (rest, value) = expr(rest).map(|(rest, value)| (rest, Some(value)))?;
    }
    let (rest, ()) = rest.semicolon("`return`")?;
    push(block, i, rest, StmtKind::Return(value))
}

/// Parses an `if` at the beginning of a statement. Its blocks end the statement, so that what
/// follows is not its operator.
fn if_stmt<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (rest, value) = i.nested(conditional)?;
    match rest.kind() {
        TokenKind::Semi => push(block, i, rest.skip(1), StmtKind::Expr(value)),
        TokenKind::RBrace if value.has_value() => block_value(block, rest, value),
        _ => push(block, i, rest, StmtKind::Expr(value)),
    }
}

fn assignment_or_expr<'a>(i: Tokens<'a>, block: &mut Block) -> Res<'a, ()> {
    let (rest, target) = expr(i)?;
    let (kind, after) = joined(rest);
    if let Some((_, op)) = ASSIGN.iter().find(|row| row.0 == kind) {
        if !matches!(target.kind, ExprKind::Name(_) | ExprKind::Index { .. }) {
            rest.not_a_place(&target);
        }
        let (rest, value) = expr(after)?;
        let (rest, ()) = rest.semicolon("the assignment")?;
        return push(block, i, rest, StmtKind::Assign { target, op: *op, value });
    }
    if rest.kind() == TokenKind::RBrace {
        return block_value(block, rest, target);
    }
    let (rest, ()) = rest.semicolon("the expression")?;
    push(block, i, rest, StmtKind::Expr(target))
}

/// Adds the statement between `start` and `end` to the block, and continues at `end`.
fn push<'a>(block: &mut Block, start: Tokens<'a>, end: Tokens<'a>, kind: StmtKind) -> Res<'a, ()> {
    block.stmts.push(Stmt { kind, span: end.since(start) });
    Ok((end, ()))
}

fn block_value<'a>(block: &mut Block, rest: Tokens<'a>, value: Expr) -> Res<'a, ()> {
    block.value = Some(Box::new(value));
    Ok((rest, ()))
}
