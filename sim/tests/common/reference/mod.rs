//! A plain interpreter of PTX arithmetic, written from the manual and without any code of the simulator's: one thread at
//! a time, every instruction in the simplest way. Programs are drawn at random, with branches and loops whose conditions
//! differ from lane to lane, and operations of the warp within them; [`Program::ptx`] is what the simulator runs,
//! [`Program::run`] what it must compute.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "shared by a test and a fuzz target")]

mod exact;
mod float;
mod integer;
mod program;
mod warp;

#[allow(unused_imports, reason = "the fuzz target draws its own programs")]
pub use program::{Program, WORDS, count};

/// What holds an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum W {
    /// A predicate.
    P,
    /// 16, 32, 64 bits.
    H,
    S,
    D,
}

impl W {
    pub fn bits(self) -> u32 {
        match self {
            W::P => 1,
            W::H => 16,
            W::S => 32,
            W::D => 64,
        }
    }
    fn twice(self) -> Option<W> {
        match self {
            W::H => Some(W::S),
            W::S => Some(W::D),
            _ => None,
        }
    }
}

/// The low `bits` bits.
pub fn word(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

type Eval = Box<dyn Fn(&[u64]) -> u64 + Send + Sync>;

/// An instruction: its text with places for the destination (`{d}`) and the operands, and what it computes.
pub struct Row {
    text: String,
    to: W,
    from: Vec<W>,
    eval: Eval,
    /// The last operand may be a constant.
    immediate: bool,
    /// The destination is written before the operands are read for the last time.
    apart: bool,
}

impl Row {
    fn immediate(self) -> Row {
        Row { immediate: true, ..self }
    }
    fn apart(self) -> Row {
        Row { apart: true, ..self }
    }
}

fn row(text: String, to: W, from: &[W], eval: impl Fn(&[u64]) -> u64 + Send + Sync + 'static) -> Row {
    Row { text, to, from: from.to_vec(), eval: Box::new(eval), immediate: false, apart: false }
}

/// All instructions of single threads.
pub fn rows() -> Vec<Row> {
    let mut l = Vec::new();
    integer::arithmetic(&mut l);
    integer::bits(&mut l);
    integer::predicates(&mut l);
    float::arithmetic(&mut l);
    float::comparisons(&mut l);
    float::conversions(&mut l);
    l
}
