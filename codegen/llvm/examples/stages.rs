//! Compiles the text of machine-level IR to PTX and times each stage; `--print` shows the PTX.
//!
//! `cargo run --release -p weft-llvm --example stages -- [file.ir] [--arch sm_90a] [--print]`
//!
//! Without a file, it compiles the two-shot allreduce of bf16 as the passes leave it (`weft compile
//! --emit after:dce`).

use std::error::Error;
use std::time::{Duration, Instant};
use weft_ir::level::Machine;
use weft_ir::{text, verify::verify};
use weft_llvm::{OptLevel, Options, emit};

const ROUNDS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut arch, mut print, mut source) =
        ("sm_90a".to_owned(), false, include_str!("two_shot.ir").to_owned());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--arch" => arch = args.next().ok_or("--arch needs a target")?,
            "--print" => print = true,
            file => source = std::fs::read_to_string(file)?,
        }
    }
    let module = verify(text::parse_module::<Machine>(&source)?).map_err(|e| format!("{e:?}"))?;
    let options = Options::new(arch.parse()?);
    if print {
        println!("{}", emit(&module, &options)?.ptx);
        return Ok(());
    }
    for opt in [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        let options = options.opt(opt);
        let start = Instant::now();
        emit(&module, &options)?;
        let first = start.elapsed();
        // The minimum of each stage is shown, because longer times include other work of the
        // machine.
        let mut least: Vec<(&str, Duration)> = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut laps = emit(&module, &options)?.timings;
            laps.push(("all", start.elapsed()));
            least.resize(laps.len(), ("", Duration::MAX));
            for (known, lap) in least.iter_mut().zip(laps) {
                *known = (lap.0, lap.1.min(known.1));
            }
        }
        let stages: Vec<_> =
            least.iter().map(|(name, time)| format!("{name} {} µs", time.as_micros())).collect();
        println!("{opt:?}: first {first:.1?}; then {}", stages.join(", "));
    }
    Ok(())
}
