//! The text form of the IR: what `--emit ir` prints, and its reader. Printing what was read gives the same text.

mod fields;
mod print;
mod read;

pub use print::{Printer, print_kernel, print_module};
pub use read::{ParseError, Reader, parse_module};

use crate::kernel::{Block, Kernel, TeamRef, Value};
use crate::names::Dim;
use crate::op::Op;

/// A field of an op: how it prints, reads, and which values it uses.
pub trait Field: Sized {
    /// Appends its text.
    fn print(&self, p: &mut Printer<'_>);
    /// Reads it back.
    fn read(r: &mut Reader<'_>) -> Result<Self, ParseError>;
    /// The values it uses.
    fn operands(&self, _visit: &mut dyn FnMut(Value)) {}
    /// Replaces the values it uses.
    fn map(&mut self, _map: &mut dyn FnMut(Value) -> Value) {}
    /// The blocks it holds.
    fn blocks<'a>(&'a self, _out: &mut Vec<&'a Block>) {}
    /// The blocks it holds.
    fn blocks_mut<'a>(&'a mut self, _out: &mut Vec<&'a mut Block>) {}
}

/// A message in which symbols such as `%4` are called what the text calls them: `n`, `my_pe(team)`, `thread_idx()`.
pub fn readable(k: &Kernel, message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    while let Some(at) = rest.find('%') {
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let symbol = rest[at + 1..at + 1 + digits].parse().ok().and_then(|id| name_of(k, Value(id)));
        out.push_str(&rest[..at]);
        match symbol {
            Some(name) => out.push_str(&name),
            None => out.push_str(&rest[at..at + 1 + digits]),
        }
        rest = &rest[at + 1 + digits..];
    }
    out + rest
}

/// What the text calls a value.
fn name_of(k: &Kernel, v: Value) -> Option<String> {
    let param = |i: u32| k.params.get(i as usize).map(|p| p.name.to_string());
    match &k.insts.get(v)?.op {
        Op::Param { index } => param(*index),
        Op::MyPe { team: TeamRef::WORLD } => Some("my_pe()".into()),
        Op::NPes { team: TeamRef::WORLD } => Some("n_pes()".into()),
        Op::MyPe { team } => Some(format!("my_pe({})", param(team.0)?)),
        Op::NPes { team } => Some(format!("n_pes({})", param(team.0)?)),
        Op::Special { reg, dim: Dim::X } => Some(format!("{reg}()")),
        Op::Special { reg, dim } => Some(format!("{reg}<{dim}>()")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Scalar, Sreg, Type};

    #[test]
    fn symbols_are_called_what_the_text_calls_them() {
        let mut b = Builder::new("k", [32, 1, 1]);
        b.param("n", Type::Scalar(Scalar::I64)).unwrap();
        b.special(Sreg::ThreadIdx, Dim::Y).unwrap();
        b.index(3).unwrap();
        let k = b.finish();
        assert_eq!(
            readable(&k, "(%0,%1):(1,%0*4), 50% of %2, %99"),
            "(n,thread_idx<y>()):(1,n*4), 50% of %2, %99"
        );
    }
}
