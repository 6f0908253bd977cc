//! Tests of every device operation on GPUs, with the kernels of the file tests, which check
//! themselves: by NVSHMEM's own functions, in place, and by both. In the end all tensors must have
//! the same bits as on the simulator.

use crate::check::{Case, Checked};
use crate::{ensure, same};
use std::path::Path;
use weft::gpu::{Grid, Kernel};
use weft::runtime::World;
use weft::{Define, KernelFile, Lowering, Options, Transport};
use weft_run::{RunOptions, run_file, run_on_gpus};

pub const CASES: &[Case] = &[
    Case::new("remote::puts_and_gets", |w| all(w, PUTS_AND_GETS)),
    Case::new("remote::strides", |w| all(w, STRIDES)),
    Case::new("remote::signals", |w| all(w, SIGNALS)),
    Case::new("remote::elements", |w| all(w, ELEMENTS)),
    Case::new("remote::waits", |w| all(w, WAITS)),
    Case::new("remote::atomics", |w| all(w, ATOMICS)),
    Case::new("remote::barriers", |w| all(w, BARRIERS)),
    Case::new("remote::reductions_by_a_thread", |w| all(w, &[reduce(&["T=i64 B=true N=5 G=0"])])),
    Case::new("remote::reductions_by_a_warp", |w| all(w, &[reduce(&["T=bf16 N=40 G=1"])])),
    Case::new("remote::reductions_by_a_block", |w| all(w, &[reduce(&["T=f32 N=1000 G=2"])])),
    Case::new("remote::reductions_of_bits", |w| all(w, &[reduce(&["T=u32 B=true N=33 G=2"])])),
    Case::new("remote::exchanges", |w| all(w, EXCHANGES)),
    Case::new("remote::examples", |w| all(w, EXAMPLES)),
    Case::new("remote::parts_of_the_world", parts).pes(2),
];

/// All transports: NVSHMEM's functions, in place, and by reach.
const EACH: &[Transport] = &[Transport::Nvshmem, Transport::P2p, Transport::Auto];
/// The transports of operations that only NVSHMEM has.
const LIBRARY: &[Transport] = &[Transport::Nvshmem, Transport::Auto];

/// A kernel file and its runs.
struct Job {
    name: &'static str,
    text: &'static str,
    /// Compile-time parameters, arguments and `grid`, such as `N=7 T=f32`. There is a run for each.
    settings: &'static [&'static str],
    transports: &'static [Transport],
    /// The tensors that depend on the order in which PEs arrive.
    racy: &'static [&'static str],
}

const fn job(name: &'static str, text: &'static str, settings: &'static [&'static str]) -> Job {
    Job { name, text, settings, transports: EACH, racy: &[] }
}

impl Job {
    const fn by(self, transports: &'static [Transport]) -> Job {
        Job { transports, ..self }
    }

    const fn racy(self, racy: &'static [&'static str]) -> Job {
        Job { racy, ..self }
    }
}

/// A kernel of the file tests, or of the examples.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../filetests/remote/", $name, ".weft"))
    };
    (example $name:literal) => {
        include_str!(concat!("../../examples/", $name, ".weft"))
    };
}

const PUTS_AND_GETS: &[Job] = &[
    job(
        "all_to_all",
        text!("rma_all_to_all"),
        &[
            "T=u8 N=1003 G=0 NBI=false",
            "T=u8 N=1003 G=0 NBI=true",
            "T=f16 N=70 G=1 NBI=false",
            "T=f16 N=70 G=1 NBI=true",
            "T=f64 N=1003 G=2 NBI=false",
            "T=f32 N=100003 G=2 NBI=true",
        ],
    ),
    job("sizes", text!("rma_sizes"), &["N=5 M=64", "N=64 M=4"]),
    job("grid", text!("rma_grid"), &["X=40 Y=1 C=3 N=333", "X=7 Y=11 C=2 N=100"]),
];

const STRIDES: &[Job] = &[
    job(
        "strided",
        text!("rma_strided"),
        &["T=f32 N=29 M=8 G=0", "T=u16 N=29 M=5 G=1", "T=f64 N=29 M=8 G=2", "T=i8 N=3 M=5 G=2"],
    ),
    job("symbolic", text!("rma_symbolic"), &["n=50 m=12", "n=7 m=4"]),
];

const SIGNALS: &[Job] = &[
    job(
        "pipeline",
        text!("signal_pipeline"),
        &[
            "K=5 N=37 G=0 ADD=true NBI=true",
            "K=5 N=37 G=0 ADD=false NBI=false",
            "K=5 N=37 G=1 ADD=false NBI=true",
            "K=5 N=37 G=1 ADD=true NBI=false",
            "K=3 N=5000 G=2 ADD=true NBI=true T=f64",
            "K=3 N=5000 G=2 ADD=false NBI=false T=u8",
        ],
    ),
    job("by_hand", text!("signal_by_hand"), &[""]),
];

const ELEMENTS: &[Job] = &[
    job("element_all", text!("element_all"), &["T=u8", "T=bf16", "T=i32", "T=f64", "T=e4m3"]),
    job("element_cast", text!("element_cast"), &[""]),
];

const WAITS: &[Job] = &[
    job("wait_compare", text!("wait_compare"), &["T=i16", "T=u32", "T=i64", "T=u64"]),
    job("wait_lists", text!("wait_lists"), &["T=u16", "T=i32", "T=u64"]).racy(&["found"]),
];

const ATOMICS: &[Job] = &[
    job("amo_contended", text!("amo_contended"), &["T=i32", "T=u32", "T=i64", "T=u64"]).racy(&["x"]),
    job("amo_float", text!("amo_float"), &["T=f32", "T=f64"]).racy(&["x"]),
];

const BARRIERS: &[Job] = &[
    job("team_sync", text!("team_sync"), &["G=0", "G=1", "G=2"]).by(LIBRARY),
    job("team_queries", text!("team_queries"), &[""]).by(LIBRARY),
    job("team_none", text!("team_none"), &[""]).by(LIBRARY),
    job("team_none", text!("team_none"), &["P2P=true"]).by(&[Transport::P2p]),
];

const fn reduce(settings: &'static [&'static str]) -> Job {
    job("team_reduce", text!("team_reduce"), settings).by(LIBRARY)
}

const EXCHANGES: &[Job] = &[job(
    "team_exchange",
    text!("team_exchange"),
    &["T=u8 N=37 G=0", "T=f64 N=37 G=1", "T=bf16 N=1000 G=2"],
)
.by(LIBRARY)];

const EXAMPLES: &[Job] = &[
    job("ring_put_get", text!(example "10_ring_put_get"), &["T=f16 N=1003", "N=1048576"]),
    job("put_signal", text!(example "11_put_signal"), &["T=bf16 N=1000 CHUNK=128", ""]),
    job("work_counter", text!(example "12_work_counter"), &["N=1000 TILE=128", ""]).racy(&["tile"]),
    job("halo_exchange", text!(example "13_halo_exchange"), &["T=bf16 N=7", ""]),
    job(
        "tile_all_gather",
        text!(example "14_tile_all_gather"),
        &["grid=1 T=u8 H=33", "grid=16 H=4096 W=128"],
    )
    .by(&[Transport::P2p]),
];

fn all(world: &World, jobs: &[Job]) -> Checked {
    let folder =
        std::env::temp_dir().join(format!("weft-gpu-remote-{}-{}", std::process::id(), world.my_pe()));
    std::fs::create_dir_all(&folder)?;
    let done = jobs.iter().try_for_each(|job| {
        job.settings.iter().try_for_each(|s| {
            one(world, job, s, &folder).map_err(|e| format!("{} with `{s}`: {e}", job.name).into())
        })
    });
    std::fs::remove_dir_all(&folder)?;
    done
}

/// Runs one setting with each transport twice, and then on the simulator.
fn one(world: &World, job: &Job, setting: &str, folder: &Path) -> Checked {
    let file = KernelFile::parse(&format!("{}.weft", job.name), job.text)?;
    let mut options = RunOptions::new(Options::new(world.device().arch()?.parse()?), world.n_pes() as usize);
    options.compile.lowering = Lowering::Unicast;
    (options.launches, options.seed) = (2, 7);
    let heads = file.heads();
    let generics: Vec<_> = heads.iter().flat_map(|head| &head.generics).map(|(name, ..)| &**name).collect();
    for word in setting.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or("a setting is NAME=VALUE")?;
        if name == "grid" {
            options.grid = Some([value.parse()?, 1, 1]);
            continue;
        }
        let value = Define::parse(value).ok_or_else(|| format!("`{word}` has no value"))?;
        if generics.contains(&name) {
            options.compile.defines.insert(name.to_owned(), value);
        } else {
            options.args.insert(name.to_owned(), value.into());
        }
    }
    let tensors = heads.iter().flat_map(|head| &head.params).filter(|p| matches!(&*p.ty, "symm" | "global"));
    let tensors: Vec<String> =
        tensors.map(|p| p.name.to_string()).filter(|name| !job.racy.contains(&name.as_str())).collect();
    let outputs = |place: &str| -> Vec<_> {
        tensors.iter().map(|t| (t.clone(), folder.join(format!("{place}-{t}.npy")))).collect()
    };

    let judges = world.my_pe() == 0;
    let without = world.nvshmem_version().is_none();
    let possible = |transport: &&Transport| !(without && **transport == Transport::Nvshmem);
    for transport in job.transports.iter().filter(possible) {
        let place = format!("{transport:?}");
        options.compile.transport = *transport;
        options.outputs = outputs(&place);
        let outcome = run_on_gpus(&file, &options, world).map_err(|e| format!("by {place}: {e}"))?;
        if judges {
            let checks: Vec<_> = outcome.checks().collect();
            same!(checks.len(), 2, "by {place}: checked launches");
            for (i, c) in checks.iter().enumerate() {
                let (all, first) = (c.elements, c.first_wrong);
                same!(c.wrong, 0, "by {place}: wrong of {all} elements in launch {i}, first {first:?}");
            }
        }
    }
    if !judges {
        return Ok(());
    }
    options.compile.transport = job.transports[0];
    options.outputs = outputs("simulated");
    run_file(&file, &options).map_err(|e| format!("simulated: {e}"))?;
    for t in &tensors {
        let bits = |place: &str| std::fs::read(folder.join(format!("{place}-{t}.npy")));
        let want = bits("simulated")?;
        for transport in job.transports.iter().filter(possible) {
            let got = bits(&format!("{transport:?}"))?;
            same!(got.len(), want.len(), "by {transport:?}: bytes of {t}");
            let differs = got.iter().zip(&want).position(|(a, b)| a != b);
            same!(differs, None, "by {transport:?}: first byte of {t} that the simulator has otherwise");
        }
    }
    Ok(())
}

/// A kernel in which ranks refer to the team that is passed. The team is every PE's pair with its
/// neighbour, or the last PE alone if the number is odd.
const PAIRS: &str =
    "kernel pairs(x: symm<i32, (64):(1)>, y: symm<i32, (64):(1)>, out: global<i32, (4):(1)>, pair: team)
    block(64)
{
    let other = n_pes(pair) - 1 - my_pe(pair);
    let t = thread_idx();
    x[t] = (translate_pe(my_pe(pair), pair) * 100 + t).to<i32>();
    y[t] = -1;
    barrier<block>(pair);
    put<block>(y, x, other, pair);
    barrier<block>(pair);
    if t == 0 {
        out[0] = y[63];
        out[1] = g(x[5], other, pair);
        out[2] = translate_pe(other, pair).to<i32>();
        out[3] = translate_pe(n_pes(pair), pair, pair).to<i32>();
    }
}";

fn parts(world: &World) -> Checked {
    let (me, n, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let (pair, _) = world.team().split_2d(2)?;
    let other = if me ^ 1 < n { me ^ 1 } else { me };
    let rank = pair.my_pe();
    for transport in LIBRARY {
        let mut options = Options::new(world.device().arch()?.parse()?);
        (options.lowering, options.transport) = (Lowering::Unicast, *transport);
        let kernel = Kernel::with(world, KernelFile::parse("pairs.weft", PAIRS)?, options)?;
        let (x, y, out) = (world.zeros::<i32>(64)?, world.zeros::<i32>(64)?, world.zeros::<i32>(4)?);
        world.barrier()?;
        kernel.launch(stream, Grid::of(1), (&x, &y, &out, &pair))?;
        let got = out.to_vec(stream)?;
        let far = other as i32;
        same!(got[..3], [far * 100 + 63, far * 100 + 5, far], "PE {me}, rank {rank}, by {transport:?}");
        same!(got[3], -1, "PE {me}: a rank that the pair does not have");
        ensure!(pair.members().contains(&other), "PE {me}: the other is of the pair");
    }
    Ok(())
}
