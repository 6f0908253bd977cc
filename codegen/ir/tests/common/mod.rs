//! Texts that use every op, and helpers that collect the errors of a text.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use weft_ir::diag::Code;
use weft_ir::kernel::Module;
use weft_ir::level::{Level, Machine, Mixed, Tensor};
use weft_ir::text::{ParseError, parse_module};
use weft_ir::verify::verify;

const SHARED: &str = include_str!("../texts/shared.ir");
const TENSOR: &str = include_str!("../texts/tensor.ir");
const MACHINE: &str = include_str!("../texts/machine.ir");
const HEAD: &str = include_str!("../texts/head.ir");
const BRIDGE: &str = include_str!("../texts/bridge.ir");

/// A level that has a text with every op of it.
pub trait Complete: Level {
    /// A text with every op of the level.
    fn text() -> String;
}

impl Complete for Tensor {
    fn text() -> String {
        named::<Tensor>(&[SHARED, TENSOR].join("\n"))
    }
}

impl Complete for Machine {
    fn text() -> String {
        named::<Machine>(&[SHARED, MACHINE, HEAD].join("\n"))
    }
}

impl Complete for Mixed {
    fn text() -> String {
        named::<Mixed>(&[SHARED, TENSOR, MACHINE, BRIDGE].join("\n"))
    }
}

/// Reads a text that must be valid.
pub fn read<L: Level>(text: &str) -> Module<L> {
    parse::<L>(text).unwrap_or_else(|e| panic!("{} level: {e}\n{text}", L::NAME))
}

/// Reads a text of this level. Its kernels need not name the level.
pub fn parse<L: Level>(text: &str) -> Result<Module<L>, ParseError> {
    parse_module(&named::<L>(text))
}

/// The text with the level's name before its kernels, as the text form requires.
fn named<L: Level>(text: &str) -> String {
    let line = |line: &str| match line.starts_with("kernel @") && L::NAME != Tensor::NAME {
        true => format!("{} {line}\n", L::NAME),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The codes of a module's errors, or of its warnings if it has no error.
pub fn codes<L: Level>(module: Module<L>) -> Vec<Code> {
    let found = match verify(module) {
        Ok(verified) => verified.warnings,
        Err(errors) => errors,
    };
    found.into_iter().map(|d| d.code).collect()
}

/// A level by name, for the rows of tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum At {
    Tensor,
    Machine,
    Mixed,
}

impl At {
    /// The codes that are reported for a text at this level.
    pub fn codes(self, text: &str) -> Vec<Code> {
        match self {
            At::Tensor => codes(read::<Tensor>(text)),
            At::Machine => codes(read::<Machine>(text)),
            At::Mixed => codes(read::<Mixed>(text)),
        }
    }
}
