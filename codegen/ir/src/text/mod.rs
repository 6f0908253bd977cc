//! The text form of the IR: what `--emit ir` prints, and its reader. Printing what was read gives the same text.

mod fields;
mod print;
mod read;

pub use print::{Printer, print_kernel, print_kernel_lines, print_module};
pub use read::{AnyModule, ParseError, Reader, parse_any, parse_module};

use crate::kernel::{Block, Kernel, TeamRef, Value};
use crate::level::{Head, Level};
use crate::names::Dim;
use crate::op::{Operation, Team, Thread, Var};

/// A field of an op: how it prints, reads, and which values it uses.
pub trait Field: Sized {
    /// Appends the text of the field.
    fn print<L: Level>(&self, p: &mut Printer<'_, L>);
    /// Reads the field from a text.
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError>;
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
pub fn readable<L: Level>(k: &Kernel<L>, message: &str) -> String {
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
fn name_of<L: Level>(k: &Kernel<L>, v: Value) -> Option<String> {
    let param = |i: u32| k.head.param_name(i).map(str::to_owned);
    let op = &k.insts.get(v)?.op;
    if let Some(Var::Param { index }) = op.var() {
        return param(*index);
    }
    if let Some(Thread::Special { reg, dim }) = op.thread() {
        return Some(if *dim == Dim::X { format!("{reg}()") } else { format!("{reg}<{dim}>()") });
    }
    let (name, team) = match op.team()? {
        Team::MyPe { team } => ("my_pe", *team),
        Team::NPes { team } => ("n_pes", *team),
        Team::Barrier { .. } => return None,
    };
    Some(if team == TeamRef::WORLD { format!("{name}()") } else { format!("{name}({})", param(team.0)?) })
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
