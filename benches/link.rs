//! Compile times of kernels that call NVSHMEM's functions: to PTX with its device bitcode linked, to a cubin with its
//! object kept, in a new process, and from the kernel cache; for comparison, the same kernels without a call.
//!
//! Run on a quiet machine: `WEFT_NVSHMEM_LIBRARIES=PLACE:... cargo bench --bench link`, with installations of NVSHMEM of
//! several versions (`.ci/run nvshmem` fetches four into `target/nvshmem`); without it the one that is found. Cubins
//! are made by nvJitLink, whose absence is said.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use weft::gpu::cache::{Cache, Key};
use weft::nvshmem::{Library, Objects};
use weft::runtime::find;
use weft::runtime::jitlink::{Input, JitLink};
use weft::{Compiled, KernelFile, Options};
use weft::{Nvshmem, Transport};

/// A put by a block, the signal after it, and the wait for the signal of another PE.
const PUT: &str = "
kernel put(x: symm<f32, (65536):(1)>, out: symm<f32, (65536):(1)>, sig: symm<u64, (1):(1)>, team: team)
    block(256) grid(1)
{
    let next = (my_pe(team) + 1) % n_pes(team);
    put<block>(out, x, next);
    if thread_idx() == 0 {
        rma_fence();
        signal_op<set>(sig[0], 1, next);
        signal_wait_until<eq>(sig[0], 1);
    }
}";

/// The same with NVSHMEM's combined function for put and signal.
const PUT_SIGNAL: &str = "
kernel put_signal(x: symm<f32, (65536):(1)>, out: symm<f32, (65536):(1)>, sig: symm<u64, (1):(1)>, team: team)
    block(256) grid(1)
{
    put_signal<block, set>(out, x, sig[0], 1, (my_pe(team) + 1) % n_pes(team));
    if thread_idx() == 0 { signal_wait_until<eq>(sig[0], 1); }
}";

/// Only queries of ranks and addresses.
const POINTERS: &str = "
kernel pointers(x: symm<f32, (65536):(1)>, team: team) block(256) grid(1) {
    let there = partition(peer(x, (my_pe(team) + 1) % n_pes(team), team), threads());
    let mine  = partition(x, threads());
    for i in 0..size<1>(mine) { there[_, i] = mine[_, i]; }
}";

const KERNELS: [(&str, &str); 3] =
    [("put, signal, wait", PUT), ("put_signal, wait", PUT_SIGNAL), ("pointers", POINTERS)];

fn compile(text: &str, transport: Transport, nvshmem: Nvshmem) -> Compiled {
    let mut options = Options::new("sm_90a".parse().unwrap());
    (options.transport, options.nvshmem) = (transport, nvshmem);
    KernelFile::parse("kernel.weft", text).unwrap().compile(&options).unwrap_or_else(|e| panic!("{e}"))
}

fn libraries() -> Vec<Library> {
    let at = |path| Library::at(find::Found { path, by: "a benchmark".into() }).unwrap();
    match std::env::var_os("WEFT_NVSHMEM_LIBRARIES") {
        Some(list) => std::env::split_paths(&list)
            .map(|place| at(find::nvshmem_device_at(&place, 90).unwrap()))
            .collect(),
        None => Library::find(90).map_err(|e| println!("{e}")).into_iter().collect(),
    }
}

fn linked(c: &mut Criterion) {
    for library in libraries() {
        for (name, text) in KERNELS {
            let from = Nvshmem::At(library.found.path.clone());
            c.bench_function(&format!("{name}: NVSHMEM {} to PTX", library.version), |b| {
                b.iter(|| compile(text, Transport::Nvshmem, from.clone()).ptx);
            });
        }
    }
    c.bench_function("put, signal, wait: in place to PTX", |b| {
        b.iter(|| compile(PUT, Transport::P2p, Nvshmem::External).ptx);
    });
}

fn joined(c: &mut Criterion) {
    let linker = match JitLink::get() {
        Ok(linker) => linker,
        Err(e) => return println!("{e}"),
    };
    let folder = TempDir::new().unwrap();
    let objects = Objects::at(folder.path());
    for library in libraries() {
        for (name, text) in KERNELS {
            let cubin = || {
                let compiled = compile(text, Transport::Nvshmem, Nvshmem::External);
                library.join(&compiled.caller().unwrap(), &objects).unwrap()
            };
            cubin();
            c.bench_function(&format!("{name}: NVSHMEM {} to cubin", library.version), |b| b.iter(cubin));
        }
    }
    c.bench_function("put, signal, wait: in place to cubin", |b| {
        b.iter(|| {
            let ptx = compile(PUT, Transport::P2p, Nvshmem::External).ptx;
            linker.link("sm_90a", None, &[Input::Ptx("kernel.ptx", &ptx)]).unwrap()
        });
    });
}

fn cold(c: &mut Criterion) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("put.weft");
    std::fs::write(&file, PUT).unwrap();
    for library in libraries() {
        let path: &PathBuf = &library.found.path;
        let run = || {
            let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
            weft.args(["compile", "--transport", "nvshmem", "--emit", "cubin", "--nvshmem"])
                .arg(path)
                .arg(&file);
            weft.env("WEFT_CACHE", folder.path().join("cache")).stdout(Stdio::null());
            assert!(weft.status().unwrap().success());
        };
        run();
        c.bench_function(
            &format!("put, signal, wait: NVSHMEM {} to cubin, cold process", library.version),
            |b| {
                b.iter(run);
            },
        );
    }
}

/// The time that a process with the text takes for a kernel that another process has compiled.
fn cached(c: &mut Criterion) {
    let folder = TempDir::new().unwrap();
    let options = Options::new("sm_90a".parse().unwrap());
    let file = KernelFile::parse("kernel.weft", PUT).unwrap();
    let compiled = compile(PUT, Transport::Nvshmem, Nvshmem::External);
    let info = compiled.describe().unwrap();
    // An image of the same size as NVSHMEM 3.8.0's.
    let image = vec![1; 360_000];
    Cache::at(folder.path()).put(&Key::of(&file, &options), weft::gpu::cache::Entry { info, image });
    c.bench_function("key to cubin of the kernel cache, from disk", |b| {
        b.iter(|| Cache::at(folder.path()).get(&Key::of(&file, &options)).unwrap());
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = linked, joined, cold, cached
}
criterion_main!(benches);
