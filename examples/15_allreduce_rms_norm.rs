//! The operations after every row-parallel layer of a transformer in one kernel: the sum of all
//! PEs' partial hidden states, the residual add, RMSNorm, and quantisation to fp8 with a scale for
//! each token. Decode uses packets, prefill uses two shots.

use float8::F8E4M3;
use half::bf16;
use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, Kernel, target};
use weft::ir::Scalar;
use weft::runtime::{DeviceTensor, World, on_every_pe};
use weft::{KernelFile, Options};

const HIDDEN: usize = 5120;
const EPS: f32 = 1e-5;

fn main() -> ExitCode {
    on_every_pe(allreduce_rms_norm)
}

pub(crate) fn allreduce_rms_norm(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
    let compile = |name: &str, more: &[(&str, i64)]| -> Result<Kernel, Box<dyn Error>> {
        let file = KernelFile::parse(
            "allreduce_rms_norm.weft",
            include_str!("../warpweft/src/library/allreduce_rms_norm.weft"),
        )?;
        let mut options = Options::new(target(world.device())?);
        options.kernel = Some(name.into());
        options.defines = [
            ("H".into(), (HIDDEN as i64).into()),
            ("OUT".into(), Scalar::E4M3.into()),
            ("PER_TOKEN".into(), true.into()),
        ]
        .into();
        options.defines.extend(more.iter().map(|(name, n)| ((*name).into(), (*n).into())));
        Ok(Kernel::with(world, file, options)?)
    };
    // The number of CTAs that share a token if there are few tokens. The workspace starts with
    // zeros and belongs to this kernel alone.
    let (split, ctas) = (4usize, 64usize);
    let sizes = [("P", n_pes.into()), ("SPLIT", split as i64), ("CTAS", ctas as i64)];
    let decode = compile("low_latency", &sizes)?;
    let packets = HIDDEN * 2 / 8;
    let slots = packets.div_ceil(n_pes as usize * split).next_multiple_of(2);
    let parts = world.zeros::<u64>(2 * slots * n_pes as usize * ctas)?;
    let sums = world.zeros::<u64>(2 * packets * ctas / split)?;
    let epoch = DeviceTensor::<u32>::zeros(ctas, stream)?;
    let prefill = compile("two_shot", &sizes[..1])?;
    let barrier = world.kernel_barrier(64)?;

    let weight = DeviceTensor::from_slice(&vec![bf16::ONE; HIDDEN], stream)?;
    let no_norm = DeviceTensor::<bf16>::zeros([1, 1], stream)?;
    for tokens in [1, 16, 300] {
        let shape = [tokens, HIDDEN];
        let x = world.tensor::<bf16>(shape)?;
        let residual = world.tensor::<bf16>(shape)?;
        let out = DeviceTensor::<F8E4M3>::zeros(shape, stream)?;
        let scale = DeviceTensor::<f32>::zeros(tokens, stream)?;
        // Small whole numbers, so that their sums are exact.
        let at = |i: usize| (i / HIDDEN + i % HIDDEN % 15) as f32 % 16.0 - 7.0;
        let made = |f: &dyn Fn(f32) -> f32| -> Vec<bf16> {
            (0..tokens * HIDDEN).map(|i| bf16::from_f32(f(at(i)))).collect()
        };
        x.copy_from(&made(&|v| v * (me + 1) as f32), stream)?;
        residual.copy_from(&made(&|v| -v), stream)?;
        world.wait_for_all()?;

        let n = tokens as i64;
        // Packets take twice the bytes but need no barrier, so they are faster for few tokens.
        if tokens * split <= ctas {
            let grid = Grid::of((tokens * split) as u32);
            let workspace = (&parts, &sums, &epoch);
            decode.launch(
                stream,
                grid,
                (
                    n,
                    &x,
                    &residual,
                    &weight,
                    EPS,
                    &out,
                    &scale,
                    &no_norm,
                    workspace.0,
                    workspace.1,
                    workspace.2,
                    &team,
                ),
            )?;
        } else {
            let grid = Grid::of(tokens.min(64) as u32);
            prefill.launch(
                stream,
                grid,
                (n, &x, &residual, &weight, EPS, &out, &scale, &no_norm, &barrier, &team),
            )?;
        }

        let factor = (1..=n_pes).sum::<u32>() as f32 - 1.0;
        if residual.to_vec(stream)? != made(&|v| v * factor) {
            return Err(format!("PE {me}: the residual of {tokens} tokens is wrong").into());
        }
        let (out, scale) = (out.to_vec(stream)?, scale.to_vec(stream)?);
        for (t, row) in out.chunks(HIDDEN).enumerate() {
            let sums: Vec<f64> = (0..HIDDEN).map(|c| f64::from(at(t * HIDDEN + c) * factor)).collect();
            let mean = sums.iter().map(|v| v * v).sum::<f64>() / HIDDEN as f64;
            for (c, (q, v)) in row.iter().zip(&sums).enumerate() {
                let (have, want) = (q.to_f64() * f64::from(scale[t]), v / (mean + f64::from(EPS)).sqrt());
                // Half a unit of e4m3, of the intermediate bf16, and of the scale's bf16.
                if (have - want).abs() > want.abs() * (1.0 / 16.0 + 1.0 / 64.0) + f64::from(scale[t]) / 512.0
                {
                    return Err(format!("PE {me}: token {t}, column {c}: {have}, expected {want}").into());
                }
            }
        }
        println!("PE {me}: {tokens} tokens of {HIDDEN}, summed over {n_pes} PEs, normalised, in fp8");
        world.barrier()?;
    }
    Ok(())
}
