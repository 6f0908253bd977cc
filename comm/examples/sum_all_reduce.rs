//! The allreduce after a row-parallel layer, in the form of mistral.rs's `SumAllReduce`: an
//! operation for candle (`CustomOp1`) that takes storage on a GPU and returns new storage. The
//! module `candle` replaces the crate with the same names and signatures, so that this example
//! needs no other crates.
//!
//! `cargo run --release -p warpweft-comm --example sum_all_reduce` starts a rank for each GPU.

#![allow(unsafe_code, reason = "storage passes its address to the communicator")]

mod ranks;

use candle::{CudaStorage, CustomOp1, Layout, Shape};
use ranks::Rank;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use warpweft_comm::{Comm, DType};
use weft::runtime::cuda::{Device, Stream};

/// The items of candle that the operation uses, under the same names.
mod candle {
    use weft::runtime::cuda::{CudaSlice, CudaStream};
    pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
    pub type Shape = Vec<usize>;

    /// Elements on a GPU, with cudarc's types as in candle.
    pub struct CudaStorage {
        pub slice: CudaSlice<f32>,
        pub stream: std::sync::Arc<CudaStream>,
    }

    pub struct Layout {
        pub shape: Shape,
        pub contiguous_offsets: Option<(usize, usize)>,
    }

    pub trait CustomOp1 {
        fn name(&self) -> &'static str;
        fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)>;
    }
}

/// The sum over all ranks, which is not computed in place.
pub struct SumAllReduce {
    comm: Arc<Comm>,
}

impl CustomOp1 for SumAllReduce {
    fn name(&self) -> &'static str {
        "SumAllReduce"
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> candle::Result<(CudaStorage, Shape)> {
        use weft::runtime::cuda::DevicePtr;
        let (start, end) = layout.contiguous_offsets.ok_or("the input has to be contiguous")?;
        let stream = &storage.stream;
        if !self.comm.should_all_reduce(end - start, DType::F32) {
            return Err("above max_bytes the engine calls NCCL here".into());
        }
        // SAFETY: the call writes all of it.
        let out = unsafe { stream.alloc::<f32>(end - start)? };
        let src = storage.slice.slice(start..end);
        {
            let ((src, _read), (dst, _written)) = (src.device_ptr(stream), out.device_ptr(stream));
            // SAFETY: both have that number of elements, and live until the stream has passed the
            // call.
            unsafe { self.comm.all_reduce(stream.cu_stream(), src, dst, end - start, DType::F32)? };
        }
        Ok((CudaStorage { slice: out, stream: stream.clone() }, layout.shape.clone()))
    }
}

fn main() -> ExitCode {
    ranks::run(rank_of)
}

fn rank_of(Rank { rank, ranks, comm }: Rank) -> Result<(), Box<dyn Error>> {
    let stream: Stream = Device::open(rank)?.new_stream()?;
    let stream = stream.gpu()?.clone();

    // These are the layer's partial sums.
    let (tokens, hidden) = (5, 4096);
    let partial: Vec<f32> = (0..tokens * hidden).map(|i| (i % 100) as f32 + rank as f32).collect();
    let storage = CudaStorage { slice: stream.clone_htod(&partial)?, stream: stream.clone() };
    let layout = Layout { shape: vec![tokens, hidden], contiguous_offsets: Some((0, tokens * hidden)) };
    let operation = SumAllReduce { comm };
    let (sum, shape) = operation.cuda_fwd(&storage, &layout)?;
    let sums = stream.clone_dtoh(&sum.slice)?;
    let all = (0..ranks).sum::<u32>() as f32;
    let right = sums.iter().enumerate().all(|(i, v)| *v == (i % 100) as f32 * ranks as f32 + all);
    println!("rank {rank} of {ranks}: {} of {shape:?} is {right}", operation.name());
    if right { Ok(()) } else { Err("wrong sums".into()) }
}
