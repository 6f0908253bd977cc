//! Times each stage from machine level to PTX, warm, for a kernel like the two-shot allreduce.
//!
//! `cargo run --release -p weft-llvm --example stages [target] [--print]`

#[path = "../tests/ptx/harness.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod harness;
#[path = "../tests/ptx/switch.rs"]
mod switch;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_ir::Scalar;
use weft_llvm::{OptLevel, Options, emit};

const ROUNDS: u32 = 200;

fn main() {
    let mut args = std::env::args().skip(1);
    let target = harness::target(&args.next().unwrap_or_else(|| "sm_90a".into()));
    let print = args.any(|a| a == "--print");
    let module = harness::verified(vec![switch::two_shot(Scalar::BF16)]);
    for opt in [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        let options = Options { opt, ..Options::new(target) };
        let start = Instant::now();
        let first = emit(&module, &options).expect("the kernel compiles");
        let cold = start.elapsed();
        let mut laps = BTreeMap::<_, Vec<Duration>>::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for (at, lap) in emit(&module, &options).expect("again").timings.into_iter().enumerate() {
                laps.entry((at, lap.0)).or_default().push(lap.1);
            }
            laps.entry((usize::MAX, "all")).or_default().push(start.elapsed());
        }
        // The least: anything more is other work of the machine's.
        let least = |laps: &Vec<Duration>| laps.iter().min().copied().unwrap_or_default();
        let stages: Vec<_> = laps.iter().map(|((_, name), all)| format!("{name} {:?}", least(all))).collect();
        println!("{opt:?}: first {cold:?}; warm, least of {ROUNDS}: {}", stages.join(", "));
        if print && opt == OptLevel::O3 {
            println!("{}", first.ptx);
        }
    }
}
