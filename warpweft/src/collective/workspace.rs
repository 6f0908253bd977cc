//! The symmetric memory that algorithms work in.

use super::table::{INBOX, LL_CTAS, LL_SLOTS, STAGE, room};
use super::{Plan, Request};
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, IntoLayout, SymmetricBuffer, World, error};

/// A workspace parameter of the library's kernels. It is zero at first, and each launch leaves it
/// to the next one.
struct Space {
    /// The name of the parameter.
    name: &'static str,
    /// Its element type, or `None` for that of the data.
    dtype: Option<DType>,
    /// The parameter whose memory it shares. Kernels with one of the two leave nothing in it to the
    /// next launch.
    shares: Option<&'static str>,
    /// Its size in bytes, according to the extents in the kernel's head.
    bytes: fn(&Extents) -> u64,
}

/// The numbers that extents depend on.
struct Extents {
    n_pes: u64,
    /// The greatest number of CTAs of a launch.
    ctas: u64,
    /// The number of CTAs that have staging memory.
    stages: u64,
    /// The number of steps of a CTA.
    steps: u64,
    /// The number of threads of a CTA.
    threads: u64,
}

const LL: u64 = LL_CTAS as u64;
/// Bytes of a CTA's counter: a cache line, which no other CTA shares.
const LINE: u64 = 128;

const SPACES: [Space; 21] = [
    Space {
        name: "ws",
        dtype: Some(DType::U64),
        shares: None,
        bytes: |e| 8 * 2 * LL_SLOTS as u64 * e.n_pes * 2 * LL,
    },
    Space { name: "epoch", dtype: Some(DType::U32), shares: None, bytes: |_| LINE * LL },
    Space {
        name: "posts",
        dtype: Some(DType::U64),
        shares: None,
        bytes: |e| 8 * 2 * LL_SLOTS as u64 * e.n_pes * 2 * LL,
    },
    Space { name: "turns", dtype: Some(DType::U32), shares: None, bytes: |e| 4 * e.n_pes * LL },
    Space { name: "posted", dtype: Some(DType::U32), shares: None, bytes: |_| LINE * LL },
    Space {
        name: "cells",
        dtype: Some(DType::U32),
        shares: None,
        bytes: |e| 16 * u64::from(room(e.n_pes as u32)) * e.n_pes * 3 * e.ctas,
    },
    Space { name: "counts", dtype: Some(DType::U32), shares: None, bytes: |e| LINE * e.ctas },
    Space { name: "stage", dtype: None, shares: None, bytes: |e| 16 * e.steps * e.n_pes * 3 * e.stages },
    Space { name: "sums", dtype: None, shares: None, bytes: |e| 16 * e.steps * e.n_pes * 2 * e.stages },
    Space { name: "flags", dtype: Some(DType::U32), shares: None, bytes: |e| 4 * e.n_pes * e.stages },
    Space { name: "rounds", dtype: Some(DType::U32), shares: None, bytes: |e| LINE * e.stages },
    Space { name: "pace", dtype: Some(DType::U32), shares: None, bytes: |_| LINE },
    Space {
        name: "blocks",
        dtype: Some(DType::I8),
        shares: Some("stage"),
        bytes: |e| 16 * e.steps * e.n_pes * 3 * e.stages,
    },
    Space {
        name: "block_sums",
        dtype: Some(DType::I8),
        shares: Some("sums"),
        bytes: |e| 16 * e.steps * e.n_pes * 2 * e.stages,
    },
    Space {
        name: "scales",
        dtype: Some(DType::BF16),
        shares: None,
        bytes: |e| 2 * e.threads * e.n_pes * 3 * e.stages,
    },
    Space {
        name: "sum_scales",
        dtype: Some(DType::BF16),
        shares: None,
        bytes: |e| 2 * e.threads * e.n_pes * 2 * e.stages,
    },
    Space { name: "marks", dtype: Some(DType::U64), shares: None, bytes: |e| 8 * e.n_pes },
    Space { name: "calls", dtype: Some(DType::U64), shares: None, bytes: |e| 8 * e.n_pes },
    Space { name: "inbox", dtype: None, shares: None, bytes: |e| INBOX as u64 * e.n_pes * 2 * LL },
    Space { name: "signals", dtype: Some(DType::U64), shares: None, bytes: |e| 8 * e.n_pes * 2 * LL },
    Space { name: "exchanges", dtype: Some(DType::U64), shares: None, bytes: |_| LINE * LL },
];

/// The element type and the number of elements of a workspace parameter, for a plan in a handle
/// with `ctas` CTAs. It is `None` if the parameter is not a workspace.
pub(super) fn extent(name: &str, plan: &Plan, request: &Request, ctas: u32) -> Option<(DType, usize)> {
    let space = SPACES.iter().find(|s| s.name == name)?;
    let dtype = space.dtype.unwrap_or(request.dtype);
    let Plan { algorithm, threads, unroll, .. } = *plan;
    let extents = Extents {
        n_pes: request.n_pes.into(),
        ctas: ctas.into(),
        stages: algorithm.stages(threads, unroll, ctas).into(),
        steps: u64::from(threads) * u64::from(unroll),
        threads: threads.into(),
    };
    Some((dtype, (space.bytes)(&extents) as usize / dtype.bytes() as usize))
}

/// The workspaces of a handle.
pub(super) struct Workspaces {
    /// The buffers, with the names of the parameters that own them.
    buffers: Vec<(&'static str, SymmetricBuffer)>,
    ctas: u32,
}

impl Workspaces {
    /// Allocates workspaces for launches of up to `ctas` CTAs and for teams of any size. This call
    /// is *collective*.
    ///
    /// # Errors
    /// Fails where [`World::buffer`] fails.
    pub fn new(world: &World, ctas: u32) -> Result<Workspaces, weft_runtime::Error> {
        let max = |n_pes: u32| Extents {
            n_pes: n_pes.into(),
            ctas: ctas.into(),
            stages: ctas.into(),
            steps: STAGE.into(),
            threads: STAGE.into(),
        };
        let zeroed = |space: &Space| {
            let bytes = (1..=world.n_pes()).map(|n| (space.bytes)(&max(n))).max();
            let buffer = world.buffer(bytes.unwrap_or(0) as usize)?;
            buffer.fill(0).map(|()| (space.name, buffer))
        };
        let buffers = SPACES.iter().filter(|s| s.shares.is_none()).map(zeroed).collect::<Result<_, _>>()?;
        // No PE may send before all workspaces are zero.
        world.barrier()?;
        Ok(Workspaces { buffers, ctas })
    }

    /// The workspace with the type and extent that the kernel of a plan expects.
    ///
    /// # Errors
    /// Fails if there is no tensor of that name (R0502).
    pub fn tensor(
        &self,
        name: &str,
        plan: &Plan,
        request: &Request,
    ) -> Result<AnyTensor, weft_runtime::Error> {
        let owner = SPACES.iter().find(|s| s.name == name).map(|s| s.shares.unwrap_or(s.name));
        let found = self.buffers.iter().find(|(n, _)| Some(*n) == owner).map(|(_, buffer)| buffer);
        let extent = extent(name, plan, request, self.ctas);
        let (Some(buffer), Some((dtype, elements))) = (found, extent) else {
            let name = format!("{} takes `{name}`, which does not exist", plan.algorithm.name);
            return Err(weft_runtime::Error::new(error::ARGUMENT, name));
        };
        AnyTensor::new(buffer.clone(), dtype, elements.into_layout()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel::{file, head, options};
    use super::super::{ALGORITHMS, Placement};
    use super::*;
    use weft_layout::Layout;
    use weft_runtime::launch::{ArgumentValue, Checked, Elements, Number};

    /// The arguments of a launch match the kernels' parameters: names, types, sizes.
    #[test]
    fn every_kernel_gets_what_it_takes() {
        for (i, algorithm) in ALGORITHMS.iter().enumerate() {
            for place in algorithm.places() {
                fits(algorithm, place, [1, 3, 8][i % 3], if i % 2 == 0 { DType::BF16 } else { DType::F32 });
            }
        }
    }

    fn fits(algorithm: &'static super::super::Algorithm, place: Placement, n_pes: u32, dtype: DType) {
        const CTAS: u32 = 264;
        let mut request = Request::new(algorithm.collective, dtype, 4096, n_pes);
        (request.place, request.multicast) = (place, algorithm.switch);
        let plan = Plan::of(algorithm, &request, CTAS);
        plan.check(&request, CTAS).unwrap();
        let mut options = options(&plan, &request, CTAS, "sm_90a".parse().unwrap()).unwrap();
        options.lowering = crate::Lowering::Unicast;
        let compiled =
            file(algorithm).unwrap().compile(&options).unwrap_or_else(|e| panic!("{algorithm:?}: {e}"));
        let info = compiled.describe().unwrap();
        let counts = request.counts();
        let larger = counts.send.max(counts.recv) as usize;
        let given: Vec<(&str, DType, Layout)> = head(algorithm, algorithm.kernel(place).unwrap())
            .unwrap()
            .params
            .iter()
            .filter(|p| !matches!(&*p.name, "n" | "team" | "sync"))
            .map(|p| {
                let (dtype, n) = match (&*p.name, place) {
                    ("x", Placement::OutOfPlace) => (dtype, counts.send as usize),
                    ("x", Placement::InPlace) => (dtype, larger),
                    ("out", _) => (dtype, counts.recv as usize),
                    (name, _) => {
                        extent(name, &plan, &request, CTAS).unwrap_or_else(|| panic!("{algorithm:?}: {name}"))
                    }
                };
                (&*p.name, dtype, n.into_layout().unwrap())
            })
            .collect();
        let params = &head(algorithm, algorithm.kernel(place).unwrap()).unwrap().params;
        let given: Vec<ArgumentValue<'_>> = params
            .iter()
            .map(|p| match &*p.name {
                "n" => ArgumentValue::Scalar { dtype: DType::I64, value: Number::Int(request.count.into()) },
                "team" => ArgumentValue::Team { my_pe: 0, n_pes, handle: 0 },
                "sync" => ArgumentValue::Barrier { address: 4096, ctas: CTAS },
                name => {
                    let (_, dtype, layout) = given.iter().find(|(n, ..)| *n == name).unwrap();
                    let extent = Elements::Layout(layout);
                    ArgumentValue::Tensor { address: 4096, dtype: *dtype, extent, symmetric: true }
                }
            })
            .collect();
        if let Err(e) = Checked::new(&info.kernels[0], Some(n_pes), &given) {
            panic!("{algorithm:?} {place:?} over {n_pes} PEs: {e}");
        }
    }
}
