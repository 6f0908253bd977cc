//! The algorithms of collectives, which are kernels of the built-in library with properties.

use super::sums::is_quantisable;
use super::table::{ALGORITHMS, STAGE};
use super::{Collective, Cost, Placement, Plan, Request, Sums};
use std::fmt;
use weft_runtime::{DType, Reduce};

/// A kernel of the built-in library.
///
/// The kernel's head declares its parameters. Its run-time parameters are among `x`, `out`, `n`
/// (elements of a part), `ws` and `epoch` (packets), `cells` and `counts` (data that is
/// its own flag), `stage`, `sums`, `flags` and `rounds` (data, and the flags of its senders), `inbox`, `signals` and `exchanges` (the same for NVSHMEM's
/// operations), `sync` (a barrier) and `team`. `x` and `out` are `symm` if other PEs read or write
/// them, and any memory of the GPU otherwise. Its compile-time parameters are among `T`, `OP`,
/// `ACC` (the type of sums), `P` (PEs), `THREADS`, `UNROLL`, `ALIGN` (bytes), `DIV` (a divisor of
/// `n`), `MC` (send through the switch), `ROOT`, and the extents of workspaces (`ROOM`: slots of a CTA).
pub struct Algorithm {
    /// The collective that the kernel computes.
    pub collective: Collective,
    /// The name on the command line.
    pub name: &'static str,
    /// The part of the library that contains it: `use weft::PART;`
    pub part: &'static str,
    /// The kernel that writes its result to another tensor.
    pub out_of_place: Option<&'static str>,
    /// The kernel that writes its result to the operand's tensor. For all-gather and reduce-scatter
    /// this is the larger tensor, in which a PE's own part is at its rank.
    pub in_place: Option<&'static str>,
    /// Whether it sends through the switch, and so needs a multicast address.
    pub switch: bool,
    /// Whether it uses NVSHMEM's operations, and so reaches PEs that loads and stores do not.
    pub net: bool,
    /// Whether the copy engine transfers its bytes, between two kernels that synchronise the PEs.
    /// The simulator runs its kernel instead.
    pub engine: bool,
    /// The bytes that a PE's threads process.
    pub work: fn(&Request) -> u64,
    /// The bytes that a thread processes in one step.
    pub unit: u64,
    /// The greatest number of CTAs.
    pub max_ctas: u32,
    /// The greatest default number of threads of a CTA.
    pub threads: u32,
    /// The greatest default number of steps of a thread in flight.
    pub unroll: u32,
    /// The greatest number of steps in flight of all threads of a CTA.
    pub max_steps: fn(&Request) -> u32,
    /// Whether empty places mark data that has not arrived, as in Lamport's algorithm. Such a
    /// launch has one round, and one value of 32-bit words is reserved.
    pub lamport: bool,
    /// The elements of a step are a multiple of this number, and fill whole vectors.
    pub run: u32,
    /// The kind of sums that it computes for a request.
    pub sums: fn(&Request) -> Sums,
    /// Whether a step needs staging memory, which all CTAs share.
    pub staged: bool,
    /// The function that computes the waits and the bytes of a launch.
    pub cost: fn(&Request, &Plan) -> Cost,
    /// One line that says how it works.
    pub about: &'static str,
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.collective, self.name)
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        (self.collective, self.name) == (other.collective, other.name)
    }
}

impl Algorithm {
    /// Every algorithm of the library. Those of one collective are in the order of the sizes that
    /// they suit, smallest first.
    pub const ALL: &[Algorithm] = &super::ALGORITHMS;

    /// The number of CTAs for which a handle with `ctas` CTAs has staging memory.
    pub(super) fn stages(&self, threads: u32, unroll: u32, ctas: u32) -> u32 {
        if !self.staged {
            return ctas;
        }
        let steps = u64::from(STAGE) * u64::from(ctas) / u64::from(threads.saturating_mul(unroll).max(1));
        u32::try_from(steps).unwrap_or(ctas).min(ctas)
    }

    /// The algorithms of a collective.
    pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |a| a.collective == collective)
    }

    /// Finds the algorithm of a collective by its name.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn find(collective: Collective, name: &str) -> Result<&'static Algorithm, String> {
        Algorithm::of(collective).find(|a| a.name == name).ok_or_else(|| {
            let known: Vec<_> = Algorithm::of(collective).map(|a| a.name).collect();
            format!("`{name}` is not an algorithm of {collective}: expected {}", known.join(", "))
        })
    }

    /// Whether it does not use an available switch, because another algorithm is the same kernel
    /// with the switch.
    pub(super) fn avoids_switch(&self) -> bool {
        let kernels = |a: &Algorithm| (a.collective, a.part, a.out_of_place, a.in_place);
        !self.switch && ALGORITHMS.iter().any(|a| a.switch && kernels(a) == kernels(self))
    }

    /// The source text of the kernel.
    pub fn source(&self) -> &'static str {
        crate::library::part(self.part).unwrap_or_default()
    }

    /// The kernel for a placement of the result.
    pub fn kernel(&self, place: Placement) -> Option<&'static str> {
        match place {
            Placement::OutOfPlace => self.out_of_place,
            Placement::InPlace => self.in_place,
        }
    }

    /// The placements of the result that it supports.
    pub fn places(&self) -> impl Iterator<Item = Placement> {
        [Placement::OutOfPlace, Placement::InPlace].into_iter().filter(|p| self.kernel(*p).is_some())
    }

    /// Checks that the algorithm supports the request.
    ///
    /// # Errors
    ///
    /// Fails if the algorithm does not support the request. The message says why.
    pub fn can(&'static self, request: &Request) -> Result<(), String> {
        let name = self.name;
        let Request { dtype, op, place, .. } = *request;
        if request.collective != self.collective {
            return Err(format!(
                "{name} is an algorithm of {}, not of {}",
                self.collective, request.collective
            ));
        }
        if dtype == DType::Bool {
            return Err("collectives need numbers, and bool is not a number type".into());
        }
        if self.collective.reduces() && reduction(op).is_none() {
            return Err(format!("{name} supports sum, min and max, but not {}", op.name()));
        }
        if (self.sums)(request) == Sums::Quantised && !is_quantisable(dtype) {
            return Err(format!("{name} compresses floats of 16 and 32 bits, but not {dtype}"));
        }
        if self.lamport && !is_quantisable(dtype) {
            return Err(format!("{name} sends floats of 16 and 32 bits, but not {dtype}"));
        }
        if self.kernel(place).is_none() {
            let only = if place == Placement::InPlace { "out of place" } else { "in place" };
            return Err(format!("{name} only works {only}"));
        }
        if self.switch && !request.multicast {
            return Err(format!("{name} needs a multicast address, but the team has none"));
        }
        if request.n_pes > MAX_PES {
            return Err(format!("{name} supports teams of at most {MAX_PES} PEs, not {}", request.n_pes));
        }
        if !request.reach && !self.net {
            return Err(format!("{name} needs loads and stores that reach all PEs"));
        }
        for (operand, symmetric) in ["x", "out"].into_iter().zip(request.symmetric) {
            if !symmetric && self.symmetric(place).contains(&operand) {
                let what = if operand == "x" { "operand" } else { "result" };
                return Err(format!(
                    "{name} needs its {what} in the symmetric heap, where other PEs can access it"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the algorithm supports the request, and that the request allows its kind of
    /// sums.
    ///
    /// # Errors
    ///
    /// Fails if the algorithm must not be used. The message says why.
    pub fn allowed(&'static self, request: &Request) -> Result<(), String> {
        self.can(request)?;
        let own = (self.sums)(request);
        if self.collective.reduces() && own > request.sums {
            return Err(format!(
                "{} computes {own} sums, but the call asks for {} sums",
                self.name, request.sums
            ));
        }
        Ok(())
    }

    /// The operands among `x` and `out` that must be symmetric according to the kernel's head.
    fn symmetric(&'static self, place: Placement) -> Vec<&'static str> {
        let head = self.kernel(place).and_then(|k| super::kernel::head(self, k).ok());
        let is =
            |name: &&str| head.iter().flat_map(|h| &h.params).any(|p| &*p.name == *name && &*p.ty == "symm");
        ["x", "out"].into_iter().filter(is).collect()
    }
}

/// The greatest number of PEs of a team for which loops over PEs are unrolled.
const MAX_PES: u32 = 32;

/// The reduction in the language's IR.
pub(super) fn reduction(op: Reduce) -> Option<weft_ir::RedOp> {
    match op {
        Reduce::Sum => Some(weft_ir::RedOp::Add),
        Reduce::Min => Some(weft_ir::RedOp::Min),
        Reduce::Max => Some(weft_ir::RedOp::Max),
        _ => None,
    }
}
