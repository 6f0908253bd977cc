//! Random programs with divergent branches, loops and operations of warps compute the same values
//! as a plain interpreter of the arithmetic.
#![no_main]

#[path = "../../sim/tests/common/reference/mod.rs"]
mod reference;

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
    let args = vec![Arg::U64(out), Arg::U64(input)];
    m.launch(&module, "k", &[Launch::default().block([32, 1, 1]).args(args)])?;
    assert_eq!(m.take_findings(), []);
    let mut bytes = vec![0; size];
    m.read(0, out, &mut bytes)?;
    Ok(bytes.chunks_exact(8).map(|w| w.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect())
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let program = Program::new(bytes, 40);
    let ours = simulated(&program, bytes.len() as u64);
    let ours = ours.unwrap_or_else(|e| panic!("{e}\n{}", program.ptx()));
    assert_eq!(ours, program.run(), "{}\n{:x?}", program.ptx(), program.inputs);
});
