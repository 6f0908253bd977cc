//! The grids and the options of launches.

use super::KernelInfo;
use crate::cuda::Device;
use crate::error::{Error, LAUNCH, Result};

/// The number of CTAs of a launch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Grid {
    /// The kernel's own grid, or without one, that of [`fill`](Grid::fill) on the kernel's device.
    #[default]
    Auto,
    /// The kernel's own grid.
    Kernel,
    /// The grid has as many CTAs as a device can hold at once and as the kernel's barriers have
    /// counters for.
    Fill(Device),
    /// The grid has this many CTAs (x, y, z).
    Of([u32; 3]),
}

impl Grid {
    /// A grid of `x` CTAs in one dimension.
    pub fn of(x: u32) -> Grid {
        Grid::Of([x, 1, 1])
    }

    /// A grid of CTAs in three dimensions.
    pub fn xyz(x: u32, y: u32, z: u32) -> Grid {
        Grid::Of([x, y, z])
    }

    /// Creates a grid of as many CTAs as the device can hold at once and as the kernel's barriers
    /// have counters for. It is for kernels without a grid of their own. All PEs with the same GPU
    /// get the same number.
    pub fn fill(device: &Device) -> Grid {
        Grid::Fill(device.clone())
    }

    /// Creates the grid that the kernel declares.
    pub fn kernel() -> Grid {
        Grid::Kernel
    }
}

/// The options of a launch in addition to its grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LaunchOptions {
    /// Whether all CTAs must be on the device at once. By default, those of kernels with a barrier
    /// must, since waiting CTAs could keep the others from starting.
    pub cooperative: Option<bool>,
    /// The shape of a cluster in CTAs (x, y, z).
    pub cluster: Option<[u32; 3]>,
    /// The size of a CTA's dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

weft_sim::setters!(
    LaunchOptions {
        cooperative: Option<bool>,
        cluster: Option<[u32; 3]>,
        shared_bytes: u32,
    }
);

/// The number of CTAs of a grid or a cluster.
pub(super) fn ctas(grid: [u32; 3]) -> u64 {
    grid.iter().fold(1, |n, g| n.saturating_mul(u64::from(*g)))
}

/// Checks the limits of grids and clusters on every device (CUDA C Programming Guide, Technical
/// Specifications).
pub(super) fn within_limits(info: &KernelInfo, grid: [u32; 3], cluster: Option<[u32; 3]>) -> Result<()> {
    const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
    const MAX_IN_CLUSTER: u64 = 8;
    let name = &info.name;
    if grid.contains(&0) || grid.iter().zip(MAX_GRID).any(|(g, max)| *g > max) {
        let message = format!("`{name}` cannot be launched with a grid of {grid:?} CTAs");
        return Err(Error::new(LAUNCH, message).help(format!("use at least 1 and at most {MAX_GRID:?} CTAs")));
    }
    let Some(cluster) = cluster else { return Ok(()) };
    if info.cluster.is_some_and(|own| own != cluster) {
        let message =
            format!("`{name}` has clusters of {:?} CTAs, but {cluster:?} were requested", info.cluster);
        return Err(Error::new(LAUNCH, message));
    }
    if !(1..=MAX_IN_CLUSTER).contains(&ctas(cluster)) {
        let message = format!("`{name}` cannot be launched in clusters of {cluster:?} CTAs");
        return Err(Error::new(LAUNCH, message).help("use clusters of 1 to 8 CTAs"));
    }
    if grid.iter().zip(cluster).any(|(g, c)| g % c != 0) {
        let message =
            format!("`{name}`: a grid of {grid:?} is not a multiple of clusters of {cluster:?} CTAs");
        return Err(Error::new(LAUNCH, message));
    }
    Ok(())
}
