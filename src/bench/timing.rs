//! Options for the number of calls of each contender.

use clap::Args;

#[derive(Args)]
pub(crate) struct Timing {
    /// The number of back-to-back calls in a timed block. Long calls get fewer.
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub iters: u32,
    /// The number of calls before the first block.
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub warmup: u32,
    /// The number of blocks of each contender. Each round runs one block of each contender, in a
    /// new random order.
    #[arg(long, default_value = "9", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: u32,
    /// Capture a block into a CUDA graph and replay it.
    #[arg(long)]
    pub graph: bool,
}
