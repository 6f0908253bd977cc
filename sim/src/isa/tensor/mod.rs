//! Matrix instructions: fragments in registers (`mma.sync`, [`mma`]), loads and stores of fragments ([`matrix`]),
//! and the asynchronous multiplications of a warpgroup ([`wgmma`]).

mod descriptor;
pub(super) mod fragment;
pub(super) mod matrix;
pub(super) mod mma;
pub(super) mod sparse;
pub(crate) mod wgmma;
pub(super) mod wmma;

use super::site::{Issue, Site, issue};
use crate::codes;
use crate::exec::{Context, Fault, Flow, fault};
use crate::num::tensor::{Arithmetic, Dot, Element};
use crate::num::{BF16, E4M3, E5M2, F16, F32, Format, TF32};
use crate::types::Ty;

/// The layout of a type's elements in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementFormat {
    /// The number of bits that an element occupies.
    pub storage: u32,
    pub element: Element,
}

const fn float(storage: u32, format: Format) -> ElementFormat {
    ElementFormat { storage, element: Element::Float(format) }
}

const fn int(bits: u32, signed: bool) -> ElementFormat {
    ElementFormat { storage: bits, element: Element::Int { bits, signed } }
}

const KINDS: &[(&str, ElementFormat)] = &[
    ("f16", float(16, F16)),
    ("bf16", float(16, BF16)),
    ("tf32", float(32, TF32)),
    ("e4m3", float(8, E4M3)),
    ("e5m2", float(8, E5M2)),
    ("f64", ElementFormat { storage: 64, element: Element::Word }),
    ("s8", int(8, true)),
    ("u8", int(8, false)),
    ("s4", int(4, true)),
    ("u4", int(4, false)),
    ("b1", ElementFormat { storage: 32, element: Element::Word }),
];

impl ElementFormat {
    pub(super) fn parse(name: &str) -> Result<ElementFormat, Issue> {
        match KINDS.iter().find(|(n, _)| *n == name) {
            Some((_, k)) => Ok(*k),
            None => issue(codes::UNKNOWN_MODIFIER, format!("`.{name}` is not a type of matrix elements"), ""),
        }
    }

    /// The number of bits of a register with elements.
    pub(super) fn register(self) -> u32 {
        self.storage.max(32)
    }

    /// The number of elements in a register.
    pub(super) fn packed(self) -> usize {
        (self.register() / self.storage) as usize
    }
}

/// The sizes of a multiplication; `k` counts elements, or words of single bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

impl Shape {
    /// Parses a shape such as `m16n8k16`.
    pub(super) fn parse(text: &str, atype: &str) -> Result<Shape, Issue> {
        let numbers: Vec<usize> =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [m, n, k] => Ok(Shape { m, n, k: if atype == "b1" { k / 32 } else { k } }),
            _ => issue(codes::UNKNOWN_MODIFIER, format!("`.{text}` is not a shape"), ""),
        }
    }
}

/// The arithmetic for products of these types. `whole_warpgroup` selects the unit of `wgmma`, which
/// multiplies 8-bit floats directly, while `mma.sync` widens them to half precision.
pub(super) fn arithmetic(
    s: &Site<'_, '_, '_>,
    atype: &str,
    whole_warpgroup: bool,
) -> Result<Arithmetic, Issue> {
    let accumulator = if s.get("dtype") == Some("f16") { F16 } else { F32 };
    let dot = |group, fraction| Ok(Arithmetic::Float(Dot { accumulator, group, fraction }));
    match atype {
        "f16" | "bf16" => dot(16, 25),
        "tf32" => dot(8, 25),
        "e4m3" | "e5m2" if whole_warpgroup => dot(32, 13),
        "e4m3" | "e5m2" => Ok(Arithmetic::Halves(Dot { accumulator, group: 16, fraction: 25 })),
        "f64" => Ok(Arithmetic::Double(s.rounding())),
        "b1" => Ok(Arithmetic::Count { xor: s.get("bitOp") == Some("xor") }),
        "" => issue(codes::UNKNOWN_MODIFIER, "this is not a type of matrix elements", ""),
        _ => Ok(Arithmetic::Int { saturate: s.has("satfinite") }),
    }
}

/// The type of a register of this number of bits.
pub(super) fn register_type(bits: u32) -> Ty {
    if bits == 64 { Ty::B64 } else { Ty::B32 }
}

/// Implements `.sync.aligned`: waits for all lanes of the warp, none of which may have exited.
pub(super) fn whole_warp(cx: &Context<'_>) -> Result<Option<Flow>, Fault> {
    if cx.live != u32::MAX {
        let lane = cx.active.trailing_zeros() as usize;
        let message = format!("a warp of {} threads executes a matrix instruction", cx.live.count_ones());
        let help = "launch whole warps, and let no thread exit before: all 32 threads execute the instruction together";
        return Err(fault(codes::UNDEFINED, lane, message, help));
    }
    Ok((cx.active != cx.live).then_some(Flow::Converge(cx.live)))
}

/// The notes on arithmetic for the page of instructions.
pub(super) const NOTES: &str = "
## How tensor cores add

Integer and bit products are exact. `.f64` products are fused multiply-adds in the order of K. For
the other types, the manual leaves the order and the intermediate precision open. Here they have the
bits of an H200. `tests/hardware_launches.rs` compares a launch of it for every shape and type of
`mma.sync` and `wgmma`, with infinities, NaNs, subnormals, cancellation and overflow.

The sum is computed as follows (Xie et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis,
Accurate Models of NVIDIA Tensor Cores, arXiv 2512.07004). Products are exact. A group of them (16,
for `.tf32` 8) is aligned with the accumulator to the largest exponent. Everything below 25 fraction
bits is cut off. The sum is rounded once, towards zero to `.f32` and to nearest to `.f16`. If
everything was cut off, the sum is +0.

`wgmma` adds 8-bit floats in groups of 32 with 13 fraction bits and gives results of 13 fraction
bits. `mma.sync` widens them to half precision. It sums the products of elements 0 and 1 of each
four, then those of 2 and 3, from zero, and adds the accumulator last. `mma.m8n8k4` is computed in
single precision without tensor cores: fused multiply-adds from zero in the order of K, then the
accumulator. With `.f16` accumulators it computes two sums of two and adds each one to the
accumulator.

The tests allow a difference from the exact sum. For each group, it is `2^-22` of the largest
magnitude among products and accumulator, times the number of terms (`2^-11` for `wgmma` of 8-bit
floats). Half a unit in the last place of an `.f16` accumulator is added. Code that depends on more
than that depends on the generation of the GPU.
";
