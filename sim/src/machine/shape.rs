//! The requirements of a kernel for a launch, and the resources that a kernel uses on a machine.

use super::{Arg, Launch, MAX_CLUSTER};
use crate::error::SimError;
use crate::exec::access::Space;
use crate::exec::code::{Code, Constant, FunctionCode, Kernel};
use crate::model::{LANES, Lanes};

/// Returns the number of threads of a block, if the block and the grid are possible for the kernel.
pub(super) fn check_shape(kernel: &Kernel, g: &Launch) -> Result<u32, SimError> {
    let name = &kernel.name;
    let threads = g.block.iter().try_fold(1_u32, |n, &d| n.checked_mul(d)).unwrap_or(0);
    let [x, y, z] = g.block;
    if threads == 0 || threads > 1024 || z > 64 {
        let help = "use 1 to 1024 threads for each CTA, at most 64 of them in z";
        return Err(SimError::request(format!("block ({x}, {y}, {z}) is not possible"), help));
    }
    if let Some(r) = kernel.reqntid.filter(|r| *r != g.block) {
        let message =
            format!("`{name}` is compiled for blocks of ({}, {}, {}), not ({x}, {y}, {z})", r[0], r[1], r[2]);
        return Err(SimError::request(message, "launch with the block that .reqntid requires"));
    }
    if let Some(m) = kernel.maxntid {
        let max = m.iter().fold(1_u64, |n, &d| n.saturating_mul(d.into()));
        if u64::from(threads) > max {
            return Err(SimError::request(
                format!("`{name}` is compiled for at most {max} threads, not {threads}"),
                "",
            ));
        }
    }
    let [x, y, z] = g.grid;
    if g.grid.contains(&0) || y > 65535 || z > 65535 || x > i32::MAX as u32 {
        let help = "use 1 to 2147483647 CTAs in x and 1 to 65535 in y and z";
        return Err(SimError::request(format!("grid ({x}, {y}, {z}) is not possible"), help));
    }
    Ok(threads)
}

/// Checks and returns the shape of the clusters of a grid.
pub(super) fn cluster(kernel: &Kernel, g: &Launch) -> Result<[u32; 3], SimError> {
    let name = &kernel.name;
    let c = match (g.cluster, kernel.cluster) {
        ([1, 1, 1], required) => required.unwrap_or(g.cluster),
        (given, Some(required)) if given != required => {
            let message = format!("`{name}` is compiled for clusters of {required:?} CTAs, not {given:?}");
            return Err(SimError::request(
                message,
                "launch with the cluster that .reqnctapercluster requires",
            ));
        }
        (given, _) => given,
    };
    let max = kernel.max_cluster.unwrap_or(MAX_CLUSTER).min(MAX_CLUSTER);
    let size = c.iter().try_fold(1_u32, |n, &d| n.checked_mul(d)).unwrap_or(0);
    if size == 0 || size > max {
        let help = format!("use clusters of 1 to {max} CTAs for `{name}`");
        return Err(SimError::request(format!("clusters of {c:?} CTAs are not possible"), help));
    }
    match g.grid.iter().zip(c).all(|(&n, c)| n % c == 0) {
        true => Ok(c),
        false => Err(SimError::request(
            format!("a grid of {:?} CTAs is not a multiple of clusters of {c:?}", g.grid),
            "make each dimension of the grid a multiple of the cluster's",
        )),
    }
}

impl Kernel {
    /// The number of CTAs that an SM holds at once, with `threads` threads and `dynamic_shared` bytes of
    /// dynamic shared memory each.
    pub fn ctas_per_sm(&self, threads: u32, dynamic_shared: u32) -> u32 {
        per_sm(threads.max(1), self.shared_bytes.saturating_add(dynamic_shared).min(228 << 10))
    }
}

/// The number of CTAs that an SM can hold: 2048 threads, 32 CTAs, and 228 KiB of shared memory, of
/// which each CTA uses 1 KiB in addition to its own.
pub(super) fn per_sm(threads: u32, shared: u32) -> u32 {
    let by_threads = 2048 / threads.next_multiple_of(LANES as u32);
    let by_shared = (228 << 10) / (shared.next_multiple_of(128) + 1024);
    by_threads.min(by_shared).clamp(1, 32)
}

/// The host memory that a resident CTA uses in bytes: registers, local and shared memory.
pub(super) fn cta_bytes(function: &FunctionCode, threads: u32, shared: u64) -> u64 {
    let warp =
        u64::from(function.registers) * size_of::<Lanes>() as u64 + LANES as u64 * function.frame_bytes;
    shared + u64::from(threads.div_ceil(LANES as u32)) * warp
}

/// Packs arguments in the layout of the entry's parameters.
pub(super) fn pack(kernel: &Kernel, args: &[Arg]) -> Result<Vec<u8>, SimError> {
    if args.len() != kernel.params.len() {
        let message = format!(
            "{} arguments for the {} parameters of `{}`",
            args.len(),
            kernel.params.len(),
            kernel.name
        );
        return Err(SimError::request(message, ""));
    }
    let mut out = vec![0; kernel.param_bytes()];
    for (p, a) in kernel.params.iter().zip(args) {
        let bytes = a.bytes();
        if bytes.len() != p.size {
            let message =
                format!("argument of {} bytes for the {}-byte parameter `{}`", bytes.len(), p.size, p.name);
            return Err(SimError::request(message, "pass an `Arg` of the parameter's size"));
        }
        out[p.offset..p.offset + p.size].copy_from_slice(&bytes);
    }
    Ok(out)
}

/// The constant pool of a kernel on a PE, in which symbols become addresses.
pub(super) fn constants(code: &Code, k: usize, symbols: &[u64]) -> Vec<Lanes> {
    let shared = &code.kernel_code[k].shared;
    let address = |variable: usize| match code.variables[variable].space {
        Space::Shared => shared.iter().find(|(v, _)| *v == variable).map_or(0, |(_, at)| *at),
        _ => symbols[variable],
    };
    let value = |c: &Constant| match *c {
        Constant::Value(v) => v,
        Constant::Symbol { variable, offset } => address(variable).wrapping_add(offset as u64),
    };
    code.constants.iter().map(|c| [value(c); LANES]).collect()
}
