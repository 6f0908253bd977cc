//! What follows a row-parallel layer in one call, with the result that a product in fp8 takes: the
//! sum of all ranks' partial hidden states, the residual add, RMSNorm, and e4m3 with a scale for
//! each 128 elements of a row.
//!
//! `cargo run --release -p warpweft-comm --example quantised_norm` starts a rank for each GPU.

#![allow(unsafe_code, reason = "tensors pass their addresses to the communicator")]

mod ranks;

use float8::F8E4M3;
use half::bf16;
use ranks::Rank;
use std::error::Error;
use std::process::ExitCode;
use warpweft_comm::{AddRmsNorm, DType, NormForm, Operands};
use weft::runtime::DeviceTensor;
use weft::runtime::cuda::Device;

const HIDDEN: usize = 7168;
const GROUP: usize = 128;
const EPS: f32 = 1e-6;

fn main() -> ExitCode {
    ranks::run(rank_of)
}

fn rank_of(Rank { rank, ranks, comm }: Rank) -> Result<(), Box<dyn Error>> {
    let stream = Device::open(rank)?.new_stream()?;

    let form = NormForm { out: DType::E4M3, group: GROUP as u32, ..NormForm::plain(DType::BF16) };
    let norm = AddRmsNorm::with_form(&comm, HIDDEN, form, 256)?;
    let weight = DeviceTensor::from_slice(&vec![bf16::ONE; HIDDEN], &stream)?;
    for tokens in [1, 16, 256] {
        let n = tokens * HIDDEN;
        // Small whole numbers, so that their sums are exact.
        let at = |i: usize| (i / HIDDEN + i % HIDDEN % 15) as f32 % 16.0 - 7.0;
        let part: Vec<_> = (0..n).map(|i| bf16::from_f32(at(i) + rank as f32)).collect();
        let old: Vec<_> = (0..n).map(|i| bf16::from_f32(-at(i))).collect();
        let input = DeviceTensor::from_slice(&part, &stream)?;
        let residual = DeviceTensor::from_slice(&old, &stream)?;
        let out = DeviceTensor::<F8E4M3>::zeros(n, &stream)?;
        let scale = DeviceTensor::<f32>::zeros(n / GROUP, &stream)?;
        let operands = Operands {
            input: input.address(),
            residual: residual.address(),
            weight: weight.address(),
            out: out.address(),
            scale: Some(scale.address()),
            ..Operands::default()
        };
        // SAFETY: the tensors have the types of the form and these sizes, and live until their
        // results have been read.
        unsafe { norm.run(stream.gpu()?.cu_stream(), tokens, &operands, EPS)? };

        let (out, scale) = (out.to_vec(&stream)?, scale.to_vec(&stream)?);
        let all = (0..ranks).sum::<u32>() as f32;
        let sums: Vec<f64> = (0..n).map(|i| (at(i) * (ranks - 1) as f32 + all).into()).collect();
        for (t, row) in sums.chunks(HIDDEN).enumerate() {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / HIDDEN as f64;
            for (c, v) in row.iter().enumerate() {
                let i = t * HIDDEN + c;
                let (s, want) = (f64::from(scale[i / GROUP]), v / (mean + f64::from(EPS)).sqrt());
                let have = out[i].to_f64() * s;
                // Half a unit of e4m3, and of bf16 before it.
                if (have - want).abs() > want.abs() * (1.0 / 16.0 + 1.0 / 128.0) + s / 512.0 {
                    return Err(format!("token {t}, column {c}: {have}, expected {want}").into());
                }
            }
        }
        println!("rank {rank} of {ranks}: {tokens} tokens in e4m3, with {} scales", scale.len());
    }
    Ok(())
}
