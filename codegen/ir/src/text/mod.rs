//! The text form of the IR: what `--emit ir` prints, and its reader. Printing what was read gives the same text.

mod fields;
mod print;
mod read;

pub use print::{Printer, print_kernel, print_module};
pub use read::{ParseError, Reader, parse_module};

use crate::kernel::{Block, Value};

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
