//! Instruction by instruction, the simulator's bits are those of an H200.
//!
//! `tests/golden/h200.txt` has a line for each case of the corpus: the hash of what the GPU computed for the very
//! inputs that are drawn here. With `WEFT_CORPUS=DIR` this test writes the corpus (PTX, inputs, the simulator's
//! outputs) to `DIR`, for `tests/golden/run_corpus.py` to execute on a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/corpus.rs"]
mod corpus;

use common::{Case, HEADER, bytes, inputs, kernel, run};
use std::fmt::Write as _;

const THREADS: usize = 1024;

fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn key(case: &Case) -> String {
    case.body.replace('\n', " ")
}

/// Writes the first `exact` cases and the rest, which are approximate.
fn dump(dir: &str, cases: &[Case], exact: usize) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut index = String::new();
    for (i, case) in cases.iter().enumerate() {
        let input = inputs(case, THREADS, i as u64);
        std::fs::write(format!("{dir}/{i}.ptx"), format!("{HEADER}{}", kernel("k", case)))?;
        std::fs::write(format!("{dir}/{i}.in"), bytes(&input))?;
        std::fs::write(format!("{dir}/{i}.sim"), bytes(&run(case, &input)))?;
        let exact = if i < exact { "exact" } else { "approximate" };
        let _ = writeln!(index, "{i}\t{}\t{}\t{exact}\t{}", case.ins.len(), case.outs.len(), key(case));
    }
    std::fs::write(format!("{dir}/index.tsv"), index)
}

#[test]
fn same_bits_as_an_h200() {
    let cases = corpus::corpus(false);
    if let Ok(dir) = std::env::var("WEFT_CORPUS") {
        let all = [cases.clone(), corpus::approximate()].concat();
        dump(&dir, &all, cases.len()).unwrap();
        return;
    }
    let golden = include_str!("golden/h200.txt");
    let lines: Vec<&str> = golden.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len(), cases.len(), "the corpus has changed: run it on a GPU again");
    let mut wrong = Vec::new();
    for (i, (case, line)) in cases.iter().zip(lines).enumerate() {
        let (hash, name) = line.split_once(' ').unwrap();
        assert_eq!(name, key(case), "the corpus has changed: run it on a GPU again");
        let ours = fnv(&bytes(&run(case, &inputs(case, THREADS, i as u64))));
        if format!("{ours:016x}") != hash {
            wrong.push(name.to_string());
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
