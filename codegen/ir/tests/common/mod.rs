//! Texts that have every op, and what the verifier says of a text.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "what is wrong in a test ends it")]

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

/// A level, by its text with every op of it.
pub trait Complete: Level {
    /// The text.
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

/// Reads a text that must be one.
pub fn read<L: Level>(text: &str) -> Module<L> {
    parse::<L>(text).unwrap_or_else(|e| panic!("{} level: {e}\n{text}", L::NAME))
}

/// Reads a text whose kernels need not name their level as one of this level.
pub fn parse<L: Level>(text: &str) -> Result<Module<L>, ParseError> {
    parse_module(&named::<L>(text))
}

/// A text whose kernels name this level, as its text form asks for.
fn named<L: Level>(text: &str) -> String {
    let line = |line: &str| match line.starts_with("kernel @") && L::NAME != Tensor::NAME {
        true => format!("{} {line}\n", L::NAME),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Codes of the errors of a module, or of the warnings where it has no error.
pub fn codes<L: Level>(module: Module<L>) -> Vec<Code> {
    let found = match verify(module) {
        Ok(verified) => verified.warnings,
        Err(errors) => errors,
    };
    found.into_iter().map(|d| d.code).collect()
}

/// A level by name, for tables.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum At {
    Tensor,
    Machine,
    Mixed,
}

impl At {
    /// The codes that a text is found to have at this level.
    pub fn codes(self, text: &str) -> Vec<Code> {
        match self {
            At::Tensor => codes(read::<Tensor>(text)),
            At::Machine => codes(read::<Machine>(text)),
            At::Mixed => codes(read::<Mixed>(text)),
        }
    }
}
