//! Tests of `weft tune`: its measurements are right and quick, they are stored, and collectives use
//! them afterwards.

use crate::check::{Case, Checked};
use crate::{ensure, finish, same};
use libtest_mimic::Failed;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use weft::collective::tuning::{By, Stored, Tables, Tuning};
use weft::collective::{Call, Collective, Collectives, Config, Limits, Placement};
use weft::runtime::{DType, DeviceTensor, Reduce, World};
use weft_bench::{Tune, tune};

pub const CASES: &[Case] =
    &[Case::new("tune::a_table_is_followed", followed).pes(2), Case::new("tune::pes_agree", agree).pes(2)];

/// The sizes: one of each kind.
const SIZES: [u64; 3] = [1 << 10, 100_004, 4 << 20];

/// Tunes, stores, reads back, and checks what collectives do with the result.
fn followed(world: &World) -> Checked {
    let mut what = Tune::new(SIZES.to_vec());
    what.collectives = vec![Collective::AllReduce, Collective::Broadcast];
    what.dtypes = vec![DType::F32];
    let mut cells = Vec::new();
    let began = std::time::Instant::now();
    let table = tune(world, &what, &mut |cell| {
        cells.push((cell.collective, cell.place, cell.bytes, cell.found.plans));
        Ok(())
    })?;
    let plans: usize = cells.iter().map(|c| c.3).sum();
    println!("{} sizes, {plans} plans in {:.1} s", cells.len(), began.elapsed().as_secs_f64());
    same!(cells.len(), 2 * 2 * SIZES.len(), "requests");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tuning.json");
    let mut tables = Tables::new();
    tables.add(table.clone());
    tables.write(&file)?;
    let collectives = Collectives::with(world, world.team(), Config::default())?;
    let Stored::Table(read, void) = Tables::read(&file)?.find(&collectives.setting()?) else {
        return Err("the table is not found for this setting".into());
    };
    ensure!(void.is_empty(), "{void:?}");
    // All PEs have the same table.
    let text = serde_json::to_vec(&read)?;
    ensure!(world.all_gather_host(&text)?.iter().all(|t| *t == text), "tables differ");
    let config = Config::default().tuning(Tuning::Table(Arc::new(*read)));
    let collectives = Collectives::with(world, world.team(), config)?;
    let stream = world.stream();
    for bytes in SIZES {
        let n = bytes as usize / 4;
        let (x, out) = (world.tensor::<f32>(n)?, world.tensor::<f32>(n)?);
        let mine: Vec<f32> = (0..n).map(|i| ((i * 7 + world.my_pe() as usize) % 31) as f32).collect();
        x.copy_from(&mine, stream)?;
        let call = Call::new(Collective::AllReduce, &x, Some(&out));
        let request = collectives.request(&call, stream)?;
        let (plan, by) = collectives.selector().plan(&request, collectives.max_ctas())?;
        same!(by, By::Table, "what chose");
        let fits = |e: &&weft::collective::tuning::Entry| {
            (e.collective, e.place, e.symmetric) == (Collective::AllReduce, Placement::OutOfPlace, true)
                && e.sizes.iter().any(|(b, _)| *b == request.bytes())
        };
        let entry = table.entries.iter().find(fits).ok_or("no entry of a size that was measured")?;
        same!(plan.algorithm.name, entry.algorithm, "algorithm");
        let Limits { ctas, threads, unroll } = entry.limits;
        ensure!(plan.ctas <= ctas && plan.threads <= threads.max(128) && plan.unroll <= unroll, "{plan:?}");
        collectives.run(&call, stream)?;
        let want = |i: usize| (0..world.n_pes() as usize).map(|pe| ((i * 7 + pe) % 31) as f32).sum::<f32>();
        let got = out.to_vec(stream)?;
        ensure!((0..n).all(|i| got[i] == want(i)), "{bytes} bytes by {plan:?}");
        // The tensors can be in any memory.
        let (x, out) =
            (DeviceTensor::from_slice(&mine, stream)?, DeviceTensor::<f32>::alloc(world.device(), n)?);
        collectives.allreduce(&x, Some(&out), Reduce::Sum, stream)?;
        let got = out.to_vec(stream)?;
        ensure!((0..n).all(|i| got[i] == want(i)), "{bytes} bytes of any memory");
    }
    Ok(())
}

/// Checks that PEs with different tables use that of the first PE.
fn agree(world: &World) -> Checked {
    let setting = Collectives::new(world)?.setting()?;
    let entry = |algorithm: &str| {
        serde_json::from_value(serde_json::json!({
            "collective": "allreduce", "place": "out-of-place", "symmetric": true, "type": "f32",
            "algorithm": algorithm, "ctas": 16, "threads": 256, "unroll": 1, "sizes": [[65536, 5.0]]
        }))
    };
    // Each PE prefers another algorithm, and the table does not state which kernels were measured.
    let mine = ["ll_two_shot", "push_direct"][world.my_pe() as usize % 2];
    let mut table = weft::collective::tuning::Table { setting, ..Default::default() };
    table.entries = vec![entry(mine)?];
    table.stamp();
    let config = Config::default().tuning(Tuning::Table(Arc::new(table)));
    let collectives = Collectives::with(world, world.team(), config)?;
    let (x, out) = (world.tensor::<f32>(16_384)?, world.tensor::<f32>(16_384)?);
    x.copy_from(&vec![1.0; 16_384], world.stream())?;
    let call = Call::new(Collective::AllReduce, &x, Some(&out));
    same!(collectives.plan(&call, world.stream())?.algorithm.name, "ll_two_shot", "the first PE's");
    collectives.run(&call, world.stream())?;
    ensure!(out.to_vec(world.stream())?.iter().all(|v| *v == world.n_pes() as f32), "sums");
    Ok(())
}

/// Tests the command itself, with its output in a file that is read again.
pub fn command(pes: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("tuning.json");
    let weft = |arguments: &[&str]| {
        let mut command = Command::new(crate::bench::weft()?);
        command.args(arguments).env("WEFT_TUNING", &file);
        finish(&mut command, arguments[0])
    };
    let pes = pes.to_string();
    let sizes = ["--sizes", "1K,1M", "--dtype", "bf16", "--pes", &pes];
    let tuned = weft(&[&["tune", "allreduce,alltoall", "--quick"], &sizes[..]].concat())?;
    let told = |why: &str| Failed::from(tuned.told(why));
    if tuned.code != Some(0) || !tuned.out.contains("# stored for ") {
        return Err(told("tuning failed"));
    }
    let show = weft(&["tune", "--show"])?;
    if show.code != Some(0) || !show.out.contains("alltoall") || !show.out.contains("bf16") {
        return Err(show.told("what is stored is not shown").into());
    }
    let auto = ["bench", "allreduce", "--algo", "auto", "--check", "--graph", "--no-calibration"];
    let bench = weft(&[&auto[..], &sizes[..]].concat())?;
    if bench.code != Some(0) || !bench.out.contains("# auto chooses by table: ") {
        return Err(bench.told("the table is not gone by").into());
    }
    damaged(&file).map_err(|e| e.to_string())?;
    let bench = weft(&[&auto[..], &sizes[..]].concat())?;
    if bench.code != Some(0) || !bench.out.contains("# auto goes by model: ") || !bench.err.contains("R0111")
    {
        return Err(bench.told("a damaged file is not told of, or is an error").into());
    }
    Ok(())
}

fn damaged(file: &Path) -> std::io::Result<()> {
    let text = std::fs::read(file)?;
    std::fs::write(file, &text[..text.len() / 2])
}
