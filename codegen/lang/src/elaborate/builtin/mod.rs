//! The functions of the language, in one table per family. docs/language.md lists them from these
//! tables.

mod collective;
mod layout;
mod math;
mod matrix;
mod memory;
mod remote;
mod tensor;
mod threads;
mod tile;

use super::expr::Call;
use super::value::{Tensor, Val};
use super::{Elab, Result, fail};
use crate::ast::{self, ExprKind};
use crate::codes::meaning::{WRONG_ARGS, WRONG_KIND};
use std::fmt;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{CmpOp, Group, Int, RedOp, Scalar, Scope, Sem, SignalKind, TeamRef, Type};

type Run = fn(&mut Elab<'_>, &Call<'_>) -> Result<Val>;

/// A function of the language.
#[derive(Clone, Copy)]
pub struct Builtin {
    /// The name of the function.
    pub name: &'static str,
    /// The form of a call, with its arguments.
    pub signature: &'static str,
    /// One line that says what the function does.
    pub doc: &'static str,
    pub(super) run: Run,
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.signature)
    }
}

const fn builtin(name: &'static str, signature: &'static str, doc: &'static str, run: Run) -> Builtin {
    Builtin { name, signature, doc, run }
}

const FAMILIES: [(&str, &[Builtin]); 9] = [
    ("Threads and PEs", threads::TABLE),
    ("Layouts", layout::TABLE),
    ("Tensors", tensor::TABLE),
    ("Memory", memory::TABLE),
    ("Tiles", tile::TABLE),
    ("Matrix products", matrix::TABLE),
    ("Other PEs' memory", remote::TABLE),
    ("Collectives", collective::TABLE),
    ("Arithmetic", math::TABLE),
];

/// Every function of the language.
pub fn all() -> impl Iterator<Item = &'static Builtin> {
    families().flat_map(|(_, table)| table)
}

/// The families, with their names.
pub fn families() -> impl Iterator<Item = (&'static str, &'static [Builtin])> {
    FAMILIES.into_iter()
}

/// The functions as tables for docs/language.md.
pub fn markdown() -> String {
    let mut out = String::new();
    for (family, table) in families() {
        out.push_str(&format!("#### {family}\n\n| | |\n|---|---|\n"));
        for b in table {
            out.push_str(&format!(
                "| `{}` | {} |\n",
                b.signature.replace('|', "\\|"),
                b.doc.replace('<', "\\<")
            ));
        }
        out.push('\n');
    }
    out
}

pub(super) fn find(name: &str) -> Option<&'static Builtin> {
    all().find(|b| b.name == name)
}

/// Words with a fixed meaning where a function expects one: memory orders, scopes, reductions.
pub(super) fn word(name: &str) -> bool {
    Sem::parse(name).is_some()
        || Scope::parse(name).is_some()
        || RedOp::parse(name).is_some()
        || Group::parse(name).is_some()
        || SignalKind::parse(name).is_some()
        || CmpOp::parse(name).is_some()
}

/// The words in angle brackets, which are taken one after the other.
pub(super) struct Words<'e> {
    positional: Vec<(&'e str, Span)>,
    named: Vec<(&'e str, &'e str, Span)>,
    span: Span,
}

impl<'e> Call<'e> {
    /// Checks the number of arguments.
    pub(super) fn arity(&self, range: std::ops::RangeInclusive<usize>) -> Result<()> {
        if let Some((Some(name), ..)) = self.args.iter().find(|a| a.0.is_some()) {
            return fail(
                WRONG_ARGS,
                name.span,
                format!("`{}` has no parameter named `{}`", self.name, name.name),
            );
        }
        if range.contains(&self.args.len()) {
            return Ok(());
        }
        let usage = find(self.name).map_or(String::new(), |b| format!("its name is `{}`", b.signature));
        Err(Diagnostic::error(
            WRONG_ARGS,
            self.span,
            format!("`{}` got {} arguments", self.name, self.args.len()),
        )
        .help(usage))
    }

    pub(super) fn val(&self, i: usize) -> (Val, Span) {
        self.args.get(i).map_or((Val::Error, self.span), |(_, v, s)| (v.clone(), *s))
    }

    pub(super) fn tensor(&self, e: &Elab<'_>, i: usize) -> Result<(Tensor, Span)> {
        match self.val(i) {
            (Val::Tensor(t), span) => Ok((t, span)),
            (other, span) => fail(
                WRONG_KIND,
                span,
                format!("`{}` needs a tensor, found {}", self.name, e.describe(&other)),
            ),
        }
    }

    pub(super) fn int(&self, e: &mut Elab<'_>, i: usize) -> Result<Int> {
        let (v, span) = self.val(i);
        e.as_int(v, span)
    }

    pub(super) fn team(&self, e: &Elab<'_>, i: usize) -> Result<TeamRef> {
        match self.val(i) {
            (Val::Team(t), _) => Ok(t),
            (other, span) => Err(Diagnostic::error(
                WRONG_KIND,
                span,
                format!("`{}` needs a team, found {}", self.name, e.describe(&other)),
            )
            .help("give the kernel a parameter `team: team`")),
        }
    }

    /// The team at argument `i`. If it is left out, it is the kernel's only team, or the team of
    /// all PEs if the kernel has none.
    pub(super) fn team_or_only(&self, e: &Elab<'_>, i: usize) -> Result<TeamRef> {
        if self.args.len() > i {
            return self.team(e, i);
        }
        let params = (0u32..).zip(&e.b.kernel().head.params);
        let teams: Vec<_> = params.filter(|(_, p)| p.ty == Type::Team).map(|(i, _)| i).collect();
        match teams[..] {
            [] => Ok(TeamRef::WORLD),
            [one] => Ok(TeamRef(one)),
            _ => Err(Diagnostic::error(
                WRONG_ARGS,
                self.span,
                format!("the kernel has {} teams, so the team is ambiguous", teams.len()),
            )
            .help(format!("pass the team as the last argument of `{}`", self.name))),
        }
    }

    /// The words in angle brackets, each of which must be used.
    pub(super) fn words(&self) -> Result<Words<'e>> {
        let mut out = Words { positional: Vec::new(), named: Vec::new(), span: self.span };
        for w in self.words {
            let ExprKind::Name(value) = &w.value.kind else {
                return fail(
                    WRONG_ARGS,
                    w.value.span,
                    format!("`{}` needs words in angle brackets", self.name),
                );
            };
            match &w.name {
                Some(n) => out.named.push((&n.name, &value.name, w.value.span)),
                None => out.positional.push((&value.name, w.value.span)),
            }
        }
        Ok(out)
    }

    /// The integer in angle brackets, as in `size<1>(x)`.
    pub(super) fn mode(&self, e: &mut Elab<'_>) -> Result<Option<i64>> {
        match self.words {
            [] => Ok(None),
            [ast::Arg { name: None, value }] => e.constant(value).map(Some),
            _ => fail(WRONG_ARGS, self.span, format!("`{}` accepts one mode in angle brackets", self.name)),
        }
    }

    /// Checks that there are no words in angle brackets.
    pub(super) fn no_words(&self) -> Result<()> {
        if self.words.is_empty() {
            Ok(())
        } else {
            fail(WRONG_ARGS, self.span, format!("`{}` accepts nothing in angle brackets", self.name))
        }
    }
}

impl<'e> Words<'e> {
    /// Takes a word that names a `T`, at any position.
    pub(super) fn take<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let i = self.positional.iter().position(|(w, _)| parse(w).is_some())?;
        let (word, _) = self.positional.remove(i);
        parse(word)
    }

    /// The threads that execute the operation together, which is a single thread by default.
    pub(super) fn group(&mut self) -> Group {
        self.take(|w| Group::parse(w).filter(|g| *g != Group::Cluster)).unwrap_or(Group::Thread)
    }

    /// Takes `name = word`.
    pub(super) fn take_named(&mut self, name: &str) -> Option<(&'e str, Span)> {
        let i = self.named.iter().position(|(n, ..)| *n == name)?;
        let (_, word, span) = self.named.remove(i);
        Some((word, span))
    }

    /// Checks that all words have been taken.
    pub(super) fn done(self, call: &str, expected: &str) -> Result<()> {
        let left = self.positional.first().copied().or(self.named.first().map(|(n, _, s)| (*n, *s)));
        match left {
            None => Ok(()),
            Some((word, span)) => {
                let span = if span.is_none() { self.span } else { span };
                Err(Diagnostic::error(WRONG_ARGS, span, format!("`{call}` does not accept `{word}`"))
                    .help(format!("it takes {expected}")))
            }
        }
    }
}

impl Elab<'_> {
    /// An element type by its name, such as `f32`, or by that of a compile-time parameter.
    pub(super) fn dtype(&mut self, name: &str, span: Span) -> Result<Scalar> {
        match self.lookup(name) {
            Some(super::Binding::Val(Val::Dtype(s))) => Ok(*s),
            _ => fail(WRONG_KIND, span, format!("`{name}` is not an element type")),
        }
    }

    /// An `i32`, for ops that have one as operand, such as those with PEs and lanes.
    pub(super) fn i32(&mut self, n: Int) -> Result<weft_ir::Value> {
        if let weft_layout::Node::Var(v) = n.node()
            && let Some(inst) = self.b.kernel().insts.get(weft_ir::Value(v.id))
            && inst.ty == Type::Scalar(Scalar::I32)
        {
            return Ok(weft_ir::Value(v.id));
        }
        match n.as_const() {
            Some(n) => self.b.int(Scalar::I32, n),
            None => {
                let wide = self.b.index(n)?;
                self.b.convert(wide, Scalar::I32)
            }
        }
    }
}
