//! The ops of the tensor level on tiles, accumulators and pipelines.

use super::Spread::{Operands, Same, Threads};
use super::here;
use crate::kernel::Value;
use crate::names::{Group, RedOp, Scalar};

family! {
    /// Tiles that move asynchronously between a tensor and shared memory (TMA), and pipelines that
    /// pass the stages of shared memory from the roles that fill them to the roles that read them.
    Tile {
        /// A full and an empty barrier for each stage.
        pure Pipeline = "pipeline" {
            /// The number of stages.
            stages: u32,
        }
        teams [], name "pipeline", spread Operands, result |t| t.pipeline(*stages);
        /// Waits for the next empty stage, and makes it expect the bytes of the copies that name
        /// the pipeline before the next acquire. Result: the stage (`i32`).
        effect Acquire = "producer_acquire" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "producer_acquire", spread Same, result |t| t.stage_of(*pipe, Scalar::I32);
        /// States that the threads have written the oldest acquired stage that is not committed
        /// yet. Together with the bytes of its copies, if there are any, this makes the stage full.
        effect Commit = "producer_commit" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "producer_commit", spread Operands, result |t| t.pipe_user(*pipe);
        /// Waits for the next full stage. Result: the stage (`i32`).
        effect Await = "consumer_wait" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_wait", spread Same, result |t| t.stage_of(*pipe, Scalar::I32);
        /// Returns the oldest stage that was waited for to the roles that fill it.
        effect Release = "consumer_release" {
            /// The pipeline.
            pipe: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_release", spread Operands, result |t| t.pipe_user(*pipe);
        /// Skips stages that another role waits for and releases. All stages that were waited for
        /// before have been released.
        effect Skip = "consumer_skip" {
            /// The pipeline.
            pipe: Value,
            /// The number of stages (`i64`), at least 0.
            stages: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "consumer_skip", spread Same, result |t| t.pipe_skip(*pipe, *stages);
        /// Begins to copy a tile of a tensor to the stage that was acquired last. Elements beyond
        /// the tensor read as 0.
        effect TmaLoad = "tma_load" {
            /// The tensor in shared memory.
            dst: Value,
            /// The tile of a parameter's tensor, with the same shape.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// The CTAs whose shared memory gets the tile, each at the same offset: this CTA and
            /// those of the cluster that differ from it only in these dimensions, as bits (x is 1,
            /// y is 2, z is 4).
            dims: u32,
            /// The coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 plus the mode of the tile that runs along it, or 0.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.tma_load(*dst, *src, *pipe, *dims, at, along);
        /// Begins to copy or reduce a tile of shared memory into a tensor. Elements beyond the
        /// tensor are not written.
        effect TmaStore = "tma_store" {
            /// The tile of a parameter's tensor.
            dst: Value,
            /// The tensor in shared memory, with the same shape.
            src: Value,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
            /// The coordinates of the tile's first element in the modes of the parameter's layout (`i64`).
            at: Vec<Value>,
            /// For each mode of the parameter's layout, 1 plus the mode of the tile that runs along it, or 0.
            along: Vec<u32>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "tma_red" } else { "tma" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.tma_store(*dst, *src, at, along));
        /// Stands for a copy out of shared memory that threads have made themselves, so that waits
        /// count it like a copy.
        effect TmaInstead = "tma_instead" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma", spread Operands, result |t| t.unit();
        /// Begins to copy consecutive bytes of a tensor to the stage that was acquired last.
        effect BulkLoad = "bulk_load" {
            /// The tensor in shared memory.
            dst: Value,
            /// A tensor with the same number of elements, which are contiguous in memory.
            src: Value,
            /// The pipeline.
            pipe: Value,
            /// The CTAs whose shared memory gets the bytes, as in `TmaLoad`.
            dims: u32,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name "bulk", spread Operands, result |t| t.bulk_load(*dst, *src, *pipe, *dims);
        /// Begins to copy or reduce consecutive bytes of shared memory into a tensor, on all PEs if
        /// it is multicast. If the tensor is in the shared memory of another CTA, the bytes arrive
        /// on that CTA's pipeline.
        effect BulkStore = "bulk_store" {
            /// A tensor with the same number of elements, which are contiguous in memory.
            dst: Value,
            /// The tensor in shared memory.
            src: Value,
            /// The reduction operation. Without one, the elements are overwritten.
            op: Option<RedOp>,
            /// The pipeline of the other CTA, for a copy to one.
            pipe: Option<Value>,
        }
        reads [here(src)], writes [here(dst)], order None, group Some(Group::Block),
        teams [], name if op.is_some() { "bulk_red" } else { "bulk" }, spread Operands, result |t| t.tma_reduction(*op).and_then(|()| t.bulk_store(*dst, *src, *pipe));
        /// Waits until all but the newest copies out of shared memory have read their source or end.
        effect TmaWait = "tma_wait" {
            /// The number of copies that may still be in flight.
            pending: u32,
            /// Whether it is enough that the copies have read their source.
            read: bool,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "tma_wait", spread Operands, result |t| t.unit();
        /// A tile of zeros to which matrix products are added. Result: the given type.
        effect Accumulator = "accumulator" {
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "accumulator", spread Threads, result |t| t.accumulator();
        /// Begins `acc + a * transpose(b)`. Result: the accumulator, which is in flight.
        effect Mma = "mma" {
            /// The tile A of modes (M, K) in shared memory, or the elements that the thread holds
            /// of a tile that is divided as the columns of an accumulator are.
            a: Value,
            /// The tile B of modes (N, K) in shared memory.
            b: Value,
            /// The accumulator of M x N elements.
            acc: Value,
        }
        reads [here(a), here(b)], writes [], order None, group Some(Group::Block),
        teams [], name "mma", spread Threads, result |t| t.mma(*a, *b, *acc);
        /// Waits until all but the newest products are complete. Result: the accumulator.
        effect MmaWait = "mma_wait" {
            /// The accumulator.
            acc: Value,
            /// The number of products that may still be in flight.
            pending: u32,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "mma_wait", spread Threads, result |t| t.mma_wait(*acc);
        /// An accumulator that begins with elements in registers. Result: the given type.
        effect AccumulatorOf = "accumulator_of" {
            /// The elements that the thread holds of the tile.
            value: Value,
        }
        reads [], writes [], order None, group Some(Group::Block),
        teams [], name "accumulator", spread Threads, result |t| t.accumulator_of(*value);
        /// Reads columns of an accumulator that no product in flight adds to. Result: the elements
        /// that the thread holds.
        effect AccumulatorRead = "accumulator_read" {
            /// The accumulator.
            acc: Value,
            /// The first column that is read.
            first: u32,
            /// The number of columns.
            cols: u32,
        }
        reads [], writes [], order None, group None,
        teams [], name "an accumulator's columns", spread Threads, result |t| t.accumulator_read(*acc, *first, *cols);
    }
}
