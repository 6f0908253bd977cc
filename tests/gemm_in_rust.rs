//! Tests a kernel that is written with the builder: its results and the checks on simulated PEs, and
//! that it is the same kernel as its text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../examples/19_gemm_in_rust.rs"]
#[expect(dead_code, reason = "a test has no `main` of its own")]
mod example;

use std::time::Duration;
use weft::ir::{Module, text::print_module};
use weft::runtime::{Error, SimConfig, World, launch};
use weft::{Compiled, KernelFile, Options, compile_ir, compile_module};

const TEXT: &str = include_str!("../examples/19_gemm_in_rust.weft");

/// The simulated PEs of a job, with all checks and a limit of time.
fn checked(pes: u32) -> SimConfig {
    SimConfig::new(pes).seed(3).checked().time_limit(Some(Duration::from_secs(60)))
}

fn module() -> Module {
    Module { kernels: vec![example::kernel().unwrap()], ..Module::default() }
}

/// The options for a target, without the lines of a text, which only one of the kernels has.
fn options(target: &str) -> Options {
    Options::new(target.parse().unwrap()).lines(false)
}

#[test]
fn results_are_those_of_the_reference() {
    let job = World::simulated_with(&checked(2)).unwrap();
    let run = |world: &World| Ok::<_, Error>(example::gemm(world).map_err(|e| e.to_string()));
    for outcome in job.run(run).unwrap() {
        outcome.unwrap();
    }
    assert_eq!(job.simulation().findings(), []);
}

/// Without the barrier of the threads that write the sums, the copy to D can begin too early.
#[test]
fn checks_find_a_missing_barrier() {
    let whole = print_module(&module());
    let text: String =
        whole.lines().filter(|line| !line.contains("group_barrier")).flat_map(|line| [line, "\n"]).collect();
    assert!(text.len() < whole.len());
    let compiled = compile_ir(&text, &options("sm_90a")).unwrap();
    let job = World::simulated_with(&checked(1)).unwrap();
    job.run(|world| {
        let (device, stream) = (world.device(), world.stream());
        let info = compiled.describe().unwrap();
        let kernel = launch::Module::load(device, compiled.ptx.as_bytes(), info)?.kernel("gemm")?;
        let [a, b, d] = [[128, 64], [64, 64], [128, 64]]
            .map(|shape| weft::runtime::DeviceTensor::<half::bf16>::zeros(shape, stream));
        let (a, b, d) = (a?, b?, d?);
        kernel.launch(stream, launch::Grid::kernel(), (128i64, 64i64, 64i64, &a, &b, &d))?;
        stream.synchronize()
    })
    .unwrap();
    let codes: Vec<_> = job.simulation().findings().iter().map(|f| f.code.to_string()).collect();
    assert!(codes.iter().any(|code| code == "S030"), "{codes:?}");
}

/// The text makes views of whole tensors first, which no instruction needs.
#[test]
fn the_builder_and_the_text_make_the_same_code() {
    for target in ["sm_90a", "sm_120"] {
        let file = KernelFile::parse("gemm.weft", TEXT).unwrap();
        let of_text: Compiled = file.compile(&options(target)).unwrap();
        let built = compile_module(module(), &options(target)).unwrap();
        assert_eq!(built.ptx, of_text.ptx, "for {target}");
        let parameters = |c: &Compiled| c.describe().unwrap().kernels[0].params.clone();
        assert_eq!(parameters(&built), parameters(&of_text), "for {target}");
    }
}
