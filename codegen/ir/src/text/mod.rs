//! The text form of the IR, which `--emit ir` prints, and its reader. Printing a parsed text gives
//! the same text.

mod fields;
mod print;
mod read;

pub use print::{Printer, print_kernel, print_kernel_lines, print_module};
pub use read::{AnyModule, ParseError, Reader, parse_any, parse_module};

use crate::kernel::{Block, Kernel, TeamRef, Value};
use crate::level::{Head, Level};
use crate::names::Dim;
use crate::op::{Operation, Team, Thread, Var};

/// A field of an op, which can be printed and parsed and which knows the values it uses.
pub trait Field: Sized {
    /// Appends the text of the field.
    fn print<L: Level>(&self, p: &mut Printer<'_, L>);
    /// Reads the field from a text.
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError>;
    /// Calls `_visit` with the values that the field uses.
    fn operands(&self, _visit: &mut dyn FnMut(Value)) {}
    /// Replaces the values that the field uses.
    fn map(&mut self, _map: &mut dyn FnMut(Value) -> Value) {}
    /// Appends the blocks that the field holds.
    fn blocks<'a>(&'a self, _out: &mut Vec<&'a Block>) {}
    /// Appends the blocks that the field holds, for changes.
    fn blocks_mut<'a>(&'a mut self, _out: &mut Vec<&'a mut Block>) {}
}

/// A message in which symbols such as `%4` are replaced by their names in the source text: `n`,
/// `my_pe(team)`, `thread_idx()`.
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

/// The name of a value in the source text.
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
    fn symbols_have_the_names_of_the_source_text() {
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
