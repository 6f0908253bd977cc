//! Assembles remote memory operations in place, without a call: every kernel of the file tests, in
//! every element type and scope that it has.
//!
//! It needs ptxas (`pip install nvidia-cuda-nvcc`). Without it the test prints a message and
//! passes, unless `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::Write;
use std::path::Path;
use weft::tools::{Tool, assemble_ptx};
use weft::{Define, KernelFile, Options, Transport};

/// A compile-time parameter and its values.
type Parameter = (&'static str, &'static [&'static str]);

/// Kernel files, with the values of their compile-time parameters.
const KERNELS: [(&str, &[Parameter]); 8] = [
    ("put_scopes", &[("N", &["1003"]), ("G", &["0", "1", "2"])]),
    ("get_scopes", &[("N", &["2001"]), ("G", &["0", "1", "2", "3"])]),
    ("strided", &[("N", &["37"])]),
    ("signal_scopes", &[("N", &["777"]), ("G", &["0", "1", "2", "3"])]),
    ("element", &[]),
    ("atomics", &[("T", &["i32", "u32", "i64", "u64"])]),
    ("float_atomics", &[("T", &["f32", "f64"])]),
    ("waits", &[("T", &["i16", "u16", "i32", "u32", "i64", "u64"])]),
];

#[test]
fn operations_in_place_assemble() {
    if let Err(missing) = Tool::Ptxas.find() {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: ptxas not found (pip install nvidia-cuda-nvcc)")
            .unwrap();
        return;
    }
    for (name, parameters) in KERNELS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/filetests/remote/{name}.weft"));
        let file = KernelFile::parse(name, &std::fs::read_to_string(path).unwrap()).unwrap();
        let mut settings: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for (parameter, values) in parameters {
            let mut more = Vec::new();
            for setting in &settings {
                for value in *values {
                    more.push([&setting[..], &[(*parameter, *value)]].concat());
                }
            }
            settings = more;
        }
        for setting in settings {
            for arch in ["sm_90a", "sm_100a"] {
                let target = arch.parse().unwrap();
                let mut options = Options::new(target);
                options.transport = Transport::P2p;
                options.debug_waits = (arch == "sm_100a").then_some(1000);
                for (parameter, value) in &setting {
                    options.defines.insert((*parameter).to_owned(), Define::parse(value).unwrap());
                }
                let compiled = file.compile(&options).unwrap_or_else(|e| panic!("{name} {setting:?}: {e}"));
                assert!(!compiled.ptx.contains("nvshmem"), "{name} {setting:?} calls:\n{}", compiled.ptx);
                assemble_ptx(&compiled.ptx, target).unwrap_or_else(|e| panic!("{name} {setting:?}: {e}"));
            }
        }
    }
}
