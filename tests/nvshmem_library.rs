//! Tests of NVSHMEM's device functions in several versions: every function that kernels can call
//! exists, with the parameters that the compiler passes and the simulator reads, and ptxas accepts
//! the linked code.
//!
//! `WEFT_NVSHMEM_LIBRARIES` lists installations of NVSHMEM (`.ci/run nvshmem` downloads four).
//! Without it nothing is tested, and a message says so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use weft::nvshmem::{Library, Objects};
use weft::runtime::find;
use weft::tools;
use weft::{KernelFile, Options, Target, Transport};

/// The bitcode for a target.
struct Bitcode {
    library: Library,
    target: Target,
}

impl Bitcode {
    fn version(&self) -> (u32, u32) {
        (self.library.version.major, self.library.version.minor)
    }
}

/// The libraries in the variable: for sm_90a, and for sm_100a if they have separate bitcode for it.
fn given() -> Vec<Bitcode> {
    let Some(list) = std::env::var_os("WEFT_NVSHMEM_LIBRARIES") else {
        println!("skipped: WEFT_NVSHMEM_LIBRARIES is not set (.ci/run nvshmem sets it)");
        return Vec::new();
    };
    let mut out: Vec<Bitcode> = Vec::new();
    for place in std::env::split_paths(&list) {
        for target in ["sm_90a", "sm_100a"] {
            let target: Target = target.parse().unwrap();
            let path = find::nvshmem_device_at(&place, target.number().into());
            let path = path.unwrap_or_else(|| panic!("{} has no device bitcode", place.display()));
            if out.iter().all(|given| given.library.found.path != path) {
                let library = Library::at(find::Found { path, by: "a test".into() }).unwrap();
                out.push(Bitcode { library, target });
            }
        }
    }
    assert!(!out.is_empty());
    out
}

#[test]
fn the_simulators_functions_are_the_librarys() {
    for given in given() {
        let path = &given.library.found.path;
        let declared = weft_llvm::nvshmem::functions(path).unwrap();
        let find = |name: &str| declared.iter().find(|f| f.name == name);
        let mut n = 0;
        for f in weft::sim::nvshmem_functions() {
            match find(f.name()) {
                Some(found) => {
                    let (ours, theirs) = ((f.params(), f.result()), (&found.params[..], found.result));
                    assert_eq!(ours, theirs, "{} of {}", f.name(), path.display());
                    assert!(f.since() <= given.version(), "{} is in {}", f.name(), path.display());
                    n += 1;
                }
                None => assert!(f.since() > given.version(), "{} is not in {}", f.name(), path.display()),
            }
        }
        println!("{}: {n} functions", path.display());
        assert!(n > 500);
    }
}

/// Whether a function is assembled. Functions that exist for many types and differ in nothing else
/// are represented by one. Functions without a type move memory. Reductions are long, so some
/// operations are only assembled for the newest library.
fn stands_for_others(name: &str, newest: bool) -> bool {
    const TYPES: [&str; 25] = [
        "bfloat16",
        "half",
        "float",
        "double",
        "char",
        "schar",
        "uchar",
        "short",
        "ushort",
        "int",
        "uint",
        "long",
        "ulong",
        "longlong",
        "ulonglong",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "size",
        "ptrdiff",
    ];
    let mut words = name.split('_').skip(1);
    let first = words.next().unwrap_or_default();
    if !TYPES.contains(&first) {
        // `put32` moves the same data as `putmem`.
        return !(first.starts_with("put") || first.starts_with("get"))
            || !first.ends_with(|c: char| c.is_ascii_digit());
    }
    let ty = first;
    let what: Vec<_> = words.collect();
    match what[..] {
        ["sum", ..] | ["max", ..] => ty == "float",
        ["prod" | "min", "reduce", ..] => newest && ty == "float",
        ["xor", ..] => ty == "uint64",
        ["and" | "or", "reduce", ..] => newest && ty == "uint64",
        ["p" | "g"] => ty.starts_with("uint"),
        ["atomic", ..] | ["wait", ..] | ["test", ..] => ["float", "uint32", "uint64"].contains(&ty),
        _ => false,
    }
}

#[test]
fn the_assembler_accepts_every_function() {
    let given = given();
    let mut jobs = Vec::new();
    for given in &given {
        let newest = given.version() == (3, 8) && given.target.number() == 90;
        let names: BTreeSet<_> = weft::sim::nvshmem_functions()
            .filter(|f| f.since() <= given.version() && stands_for_others(f.name(), newest))
            .map(weft::sim::NvshmemFunction::name)
            .collect();
        let names: Vec<_> = names.into_iter().collect();
        // The functions are divided over two processors, and functions that share code stay
        // together.
        let part = |f: &dyn Fn(&str) -> bool| names.iter().copied().filter(|n| f(n)).collect::<Vec<_>>();
        let (block, warp) = (|n: &str| n.ends_with("_block"), |n: &str| n.ends_with("_warp"));
        let long = |n: &str| n.contains("_reduce");
        let parts = [
            part(&|n| block(n) && long(n)),
            part(&|n| block(n) && !long(n)),
            part(&|n| warp(n) && long(n)),
            part(&|n| warp(n) && !long(n)),
            part(&|n| !block(n) && !warp(n)),
        ];
        jobs.extend(parts.into_iter().map(|names| (given, names)));
    }
    // The longest jobs run first.
    jobs.reverse();
    jobs.sort_by_key(|(given, _)| std::cmp::Reverse(given.version()));
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((given, names)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            let path = &given.library.found.path;
            let out = weft_llvm::object(path, names, &weft_llvm::Options::new(given.target)).unwrap();
            let linked = begin.elapsed();
            let begin = Instant::now();
            if let Err(e) = tools::assemble_object(&out.ptx, given.target, None) {
                failures.lock().unwrap().push(format!("{}: {e}", path.display()));
            }
            println!(
                "{} for {}: {} functions, {} lines, {:.1} s + {:.1} s",
                given.library.version,
                given.target,
                names.len(),
                out.ptx.lines().count(),
                linked.as_secs_f64(),
                begin.elapsed().as_secs_f64()
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Checks that code which is assembled separately from its kernel needs no more registers than the
/// kernel's threads leave.
#[test]
fn kernels_of_any_size_are_joined_with_their_objects() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Objects::at(folder.path());
    for given in given() {
        for threads in [32, 512, 1024] {
            let text = format!(
                "kernel k(x: symm<f32, (4096):(1)>, out: symm<f32, (4096):(1)>, team: team) block({threads}) {{
                     put<block>(out, x, (my_pe(team) + 1) % n_pes(team));
                 }}"
            );
            let mut options = Options::new(given.target);
            options.transport = Transport::Nvshmem;
            let compiled = KernelFile::parse("k.weft", &text).unwrap().compile(&options).unwrap();
            let cubin = given.library.join(&compiled.caller().unwrap(), &objects).map(|made| made.cubin);
            let cubin = cubin.unwrap_or_else(|e| panic!("{threads} threads, {}: {e}", given.library.version));
            assert!(cubin.starts_with(b"\x7fELF"));
        }
    }
}
