//! Algorithms: kernels of the built-in library, and what each can do.

use super::sums::is_quantisable;
use super::table::{ALGORITHMS, STAGE};
use super::{Collective, Cost, Placement, Plan, Request, Sums};
use std::fmt;
use weft_runtime::{DType, Reduce};

/// A kernel of the built-in library.
///
/// What it takes it says itself. Its run-time parameters are among `x`, `out`, `n` (elements of a part), `ws` and `epoch`
/// (packets), `stage`, `sums`, `flags` and `rounds` (data and
/// who has sent it), `inbox`, `signals` and `exchanges` (the same by NVSHMEM's operations), `sync` (a barrier) and `team`; `x` and `out` are `symm`
/// where other PEs read or write them, else any memory of the GPU. Its compile-time parameters are among `T`, `OP`, `ACC`
/// (what sums are made in), `P` (PEs), `THREADS`, `UNROLL`, `ALIGN` (bytes), `DIV` (what `n` is a
/// multiple of), `MC` (send by the switch), `ROOT`, and the extents of workspaces.
pub struct Algorithm {
    /// The collective that the kernel computes.
    pub collective: Collective,
    /// The name on the command line.
    pub name: &'static str,
    /// The part of the library that has it: `use weft::PART;`
    pub part: &'static str,
    /// The kernel that has its result in another tensor.
    pub out_of_place: Option<&'static str>,
    /// The kernel that has its result where the operand was. All-gather and reduce-scatter take the larger tensor then,
    /// in which a PE's own part lies at its rank.
    pub in_place: Option<&'static str>,
    /// Whether it sends by the switch, and so needs a multicast address.
    pub switch: bool,
    /// Whether it goes by NVSHMEM's operations, and so reaches PEs that loads and stores do not.
    pub net: bool,
    /// Whether the copy engine carries its bytes, between two kernels in which PEs meet. Its kernels are what is simulated.
    pub engine: bool,
    /// Bytes that a PE's threads go through.
    pub work: fn(&Request) -> u64,
    /// Bytes of them in a step of a thread.
    pub unit: u64,
    /// The greatest number of CTAs.
    pub most_ctas: u32,
    /// Most threads of a CTA where nobody has measured.
    pub threads: u32,
    /// Most steps of a thread at once where nobody has measured.
    pub unroll: u32,
    /// Most steps of all threads of a CTA at once.
    pub most_steps: u32,
    /// Elements of which a step has a multiple, beside whole vectors.
    pub run: u32,
    /// What happens to the sums of a request.
    pub sums: fn(&Request) -> Sums,
    /// Whether a step takes staging memory, which all CTAs share.
    pub staged: bool,
    /// The function that says what a launch waits for and moves.
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
    /// Every algorithm. Those of one collective are in the order of the sizes that they are for, smallest first.
    pub const ALL: &[Algorithm] = &super::ALGORITHMS;

    /// CTAs that there is staging memory for in a handle with so many.
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
            format!("`{name}` is no algorithm of {collective}: expected {}", known.join(", "))
        })
    }

    /// Whether it leaves the switch alone where there is one, since another algorithm is the same kernel by the switch.
    pub(super) fn avoids_switch(&self) -> bool {
        let kernels = |a: &Algorithm| (a.collective, a.part, a.out_of_place, a.in_place);
        !self.switch && ALGORITHMS.iter().any(|a| a.switch && kernels(a) == kernels(self))
    }

    /// The source text of the kernel.
    pub fn source(&self) -> &'static str {
        crate::library::part(self.part).unwrap_or_default()
    }

    /// The kernel for a place.
    pub fn kernel(&self, place: Placement) -> Option<&'static str> {
        match place {
            Placement::OutOfPlace => self.out_of_place,
            Placement::InPlace => self.in_place,
        }
    }

    /// The places where it can have its results.
    pub fn places(&self) -> impl Iterator<Item = Placement> {
        [Placement::OutOfPlace, Placement::InPlace].into_iter().filter(|p| self.kernel(*p).is_some())
    }

    /// Whether it can do that.
    ///
    /// # Errors
    /// Says why the algorithm cannot do it.
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
            return Err("collectives are of numbers, and bool is none".into());
        }
        if self.collective.reduces() && reduction(op).is_none() {
            return Err(format!("{name} does sum, min and max, and not {}", op.name()));
        }
        if (self.sums)(request) == Sums::Quantised && !is_quantisable(dtype) {
            return Err(format!("{name} sends floats of 16 and 32 bits in fewer bits, and not {dtype}"));
        }
        if self.kernel(place).is_none() {
            let only = if place == Placement::InPlace { "out of place" } else { "in place" };
            return Err(format!("{name} works {only} only"));
        }
        if self.switch && !request.multicast {
            return Err(format!("{name} needs a multicast address, and the team has none"));
        }
        if request.n_pes > MOST_PES {
            return Err(format!("{name} is for teams of up to {MOST_PES} PEs, not {}", request.n_pes));
        }
        if !request.reach && !self.net {
            return Err(format!("{name} needs all PEs in reach of loads and stores"));
        }
        for (operand, symmetric) in ["x", "out"].into_iter().zip(request.symmetric) {
            if !symmetric && self.symmetric(place).contains(&operand) {
                let what = if operand == "x" { "operand" } else { "result" };
                return Err(format!(
                    "{name} needs its {what} in the symmetric heap, where other PEs reach it"
                ));
            }
        }
        Ok(())
    }

    /// Whether it can do that, and the request allows what happens to its sums.
    ///
    /// # Errors
    /// Says why the algorithm is not to do it.
    pub fn allowed(&'static self, request: &Request) -> Result<(), String> {
        self.can(request)?;
        let own = (self.sums)(request);
        if self.collective.reduces() && own > request.sums {
            return Err(format!(
                "{} has {own} sums, and the call is to have {} ones",
                self.name, request.sums
            ));
        }
        Ok(())
    }

    /// Which of `x` and `out` must be symmetric, as the kernel's head says.
    fn symmetric(&'static self, place: Placement) -> Vec<&'static str> {
        let head = self.kernel(place).and_then(|k| super::handle::head(self, k).ok());
        let is =
            |name: &&str| head.iter().flat_map(|h| &h.params).any(|p| &*p.name == *name && &*p.ty == "symm");
        ["x", "out"].into_iter().filter(is).collect()
    }
}

/// Most PEs of a team whose loops over PEs are taken apart.
const MOST_PES: u32 = 32;

/// A reduction in the language's words.
pub(super) fn reduction(op: Reduce) -> Option<weft_ir::RedOp> {
    match op {
        Reduce::Sum => Some(weft_ir::RedOp::Add),
        Reduce::Min => Some(weft_ir::RedOp::Min),
        Reduce::Max => Some(weft_ir::RedOp::Max),
        _ => None,
    }
}
