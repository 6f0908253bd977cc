//! Runs every kernel of examples/ on GPUs and on the simulator: the same PTX and the same data must
//! give the same bits.

use crate::check::{Case, Checked};
use crate::same;
use std::path::Path;
use weft::runtime::World;
use weft::{Define, KernelFile, Lowering, Options};
use weft_run::{RunOptions, run_file, run_on_gpus};

pub const CASES: &[Case] = &[
    Case::new("kernels::allreduce_two_shot", |w| kernel(w, "allreduce_two_shot")),
    Case::new("kernels::allreduce_one_shot", |w| kernel(w, "allreduce_one_shot")),
    Case::new("kernels::all_gather", |w| kernel(w, "all_gather")),
    Case::new("kernels::reduce_scatter", |w| kernel(w, "reduce_scatter")),
    Case::new("kernels::broadcast", |w| kernel(w, "broadcast")),
];

const TYPES: [&str; 3] = ["f32", "f16", "bf16"];
const SIZES: [i64; 4] = [1, 7, 4096, (1 << 20) + 3];

/// The texts of the kernels, so that the test needs no other files.
const TEXTS: &[(&str, &str)] = &[
    ("allreduce_two_shot", include_str!("../../examples/allreduce_two_shot.weft")),
    ("allreduce_one_shot", include_str!("../../examples/allreduce_one_shot.weft")),
    ("all_gather", include_str!("../../examples/all_gather.weft")),
    ("reduce_scatter", include_str!("../../examples/reduce_scatter.weft")),
    ("broadcast", include_str!("../../examples/broadcast.weft")),
];

fn kernel(world: &World, name: &str) -> Checked {
    let (_, text) = TEXTS.iter().find(|(n, _)| *n == name).ok_or("an example is not in the table")?;
    let file = KernelFile::parse(&format!("{name}.weft"), text)?;
    let folder =
        std::env::temp_dir().join(format!("weft-gpu-{name}-{}-{}", std::process::id(), world.my_pe()));
    std::fs::create_dir_all(&folder)?;
    let done =
        TYPES.iter().try_for_each(|ty| SIZES.iter().try_for_each(|n| one(world, &file, ty, *n, &folder)));
    std::fs::remove_dir_all(&folder)?;
    done
}

fn one(world: &World, file: &KernelFile, ty: &str, n: i64, folder: &Path) -> Checked {
    let mut compile = Options::new(world.device().arch()?.parse()?);
    compile.defines.insert("T".into(), Define::parse(ty).ok_or("a type")?);
    compile.defines.insert("N".into(), Define::Int(n));
    let mut options = RunOptions::new(compile, world.n_pes() as usize);
    options.seed = n as u64;
    options.launches = 2;
    options.grid = Some([if n > 5000 { 32 } else { 3 }, 1, 1]);
    let tensors: Vec<String> = file
        .heads()
        .iter()
        .flat_map(|h| &h.params)
        .filter(|p| matches!(&*p.ty, "symm" | "global"))
        .map(|p| p.name.to_string())
        .collect();
    let outputs =
        |place: &str| tensors.iter().map(|t| (t.clone(), folder.join(format!("{place}-{t}.npy")))).collect();

    options.outputs = outputs("gpu");
    let outcome = run_on_gpus(file, &options, world)?;
    if world.my_pe() != 0 {
        return Ok(());
    }
    for (i, c) in outcome.checks().enumerate() {
        same!(
            c.wrong,
            0,
            "{ty}, {n} elements, launch {i}: wrong elements of {}, first {:?}",
            c.elements,
            c.first_wrong
        );
    }
    same!(outcome.checks().count(), 2, "checked launches");
    // The simulator now runs the PTX that the GPUs ran.
    options.outputs = outputs("sim");
    options.compile.lowering = Lowering::Unicast;
    let simulated = run_file(file, &options)?;
    same!(
        outcome.kernels[0].compiled.ptx == simulated.kernels[0].compiled.ptx,
        outcome.kernels[0].compiled.lowering == weft::runtime::launch::Lowering::Unicast,
        "the same PTX"
    );
    for t in &tensors {
        let [gpu, sim] = ["gpu", "sim"].map(|place| std::fs::read(folder.join(format!("{place}-{t}.npy"))));
        let (gpu, sim) = (gpu?, sim?);
        let differs = gpu.iter().zip(&sim).position(|(a, b)| a != b);
        same!(differs, None, "{ty}, {n} elements: first byte of {t} in which GPU and simulator differ");
        same!(gpu.len(), sim.len(), "bytes of {t}");
    }
    Ok(())
}
