//! The executor computes what a plain interpreter does, bit for bit, on random programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/reference/mod.rs"]
mod reference;

use proptest::prelude::*;
use reference::Program;
use weft_sim::{Arg, Check, Config, Launch, Machine, Module};

fn simulated(program: &Program, seed: u64) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let module = Module::parse(&program.ptx())?;
    let config = Config::default().seed(seed).explore(seed % 2 == 1).check(Some(Check::default()));
    let mut m = Machine::new(config)?;
    let size = program.inputs.len() * 8;
    let (out, input) = (m.alloc(0, "out", size as u64, 8)?, m.alloc(0, "in", size as u64, 8)?);
    let bytes: Vec<u8> = program.inputs.iter().flat_map(|w| w.to_le_bytes()).collect();
    m.write(0, input, &bytes)?;
    m.write(0, out, &vec![0; size])?;
    let launch = Launch::default().block([32, 1, 1]).args(vec![Arg::U64(out), Arg::U64(input)]);
    m.launch(&module, "k", &[launch])?;
    assert_eq!(m.take_findings(), [], "{}", program.ptx());
    let mut bytes = vec![0; size];
    m.read(0, out, &mut bytes)?;
    Ok(bytes.chunks(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect())
}

fn agree(bytes: &[u8], max: usize, seed: u64) {
    let program = Program::new(bytes, max);
    let ours = simulated(&program, seed).unwrap_or_else(|e| panic!("{e}\n{}", program.ptx()));
    let want = program.run();
    let wrong = (0..want.len()).find(|i| ours[*i] != want[*i]);
    if let Some(i) = wrong {
        let (lane, register) = (i / reference::WORDS, i % reference::WORDS);
        panic!(
            "lane {lane}, result {register}: {:#x} instead of {:#x}\ninputs {:x?}\n{}",
            ours[i],
            want[i],
            &program.inputs[lane * reference::WORDS..][..reference::WORDS],
            program.ptx()
        );
    }
}

fn random(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..8000).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs(choices in any::<u64>(), max in 1..60_usize, seed in 0..4_u64) {
        agree(&random(choices), max, seed);
    }
}

/// Every instruction by itself, on all kinds of numbers.
#[test]
fn instructions() {
    let mut wrong = Vec::new();
    for i in 0..8 * reference::count() {
        let program = Program::only(i % reference::count(), &random(i as u64));
        let ours = match simulated(&program, 0) {
            Ok(ours) => ours,
            Err(e) => {
                wrong.push(format!("{}{e}", program.text()));
                continue;
            }
        };
        let want = program.run();
        if let Some(j) = (0..want.len()).find(|j| ours[*j] != want[*j]) {
            let inputs = &program.inputs[j / reference::WORDS * reference::WORDS..][..reference::WORDS];
            wrong.push(format!(
                "{}{:#x} instead of {:#x} from {inputs:x?}",
                program.text(),
                ours[j],
                want[j]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), 8 * reference::count(), wrong.join("\n"));
}
