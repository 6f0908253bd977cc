//! The kernel that spreads rows over clusters, in SASS: what stands between its loads, its packets and its results.
//!
//! Needs ptxas and nvdisasm. Without them, the test says so and passes, unless `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "sass/listing.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod listing;

use listing::{Inst, Kernel, kernels};
use std::io::Write;
use weft::fused::{Form, Fused, Plan};
use weft::ir::Scalar;
use weft::tools::{Tool, assemble_ptx, disassemble};
use weft::{KernelFile, Lowering, Options};

const HIDDEN: usize = 8192;

/// A plan's kernel in SASS for one row of 8192 elements on two PEs.
fn compiled(form: Form, split: u32, threads: u32) -> Kernel {
    let target = "sm_90a".parse().unwrap();
    let plan = Plan::spread(&Fused::ALL[0], 1, 2 * HIDDEN, 132, (split, Some(threads)));
    let (name, text) = plan.kernel.file();
    let mut options = Options::new(target);
    options.lowering = Lowering::Unicast;
    options.kernel = Some(plan.kernel.kernel().into());
    options.defines = plan.defines(form, HIDDEN, 2).into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
    let compiled = KernelFile::parse(name, text).unwrap().compile(&options).unwrap();
    let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
    kernels(&listing).into_values().next().unwrap()
}

/// The places of instructions with such a name among those of a kernel.
fn places(insts: &[Inst], prefix: &str) -> Vec<usize> {
    insts.iter().enumerate().filter(|(_, i)| i.is(prefix)).map(|(at, _)| at).collect()
}

fn skipped() -> bool {
    let missing = [Tool::Ptxas, Tool::Nvdisasm].iter().find_map(|tool| tool.find().err());
    let Some(missing) = missing else { return false };
    assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
    writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
    true
}

/// Everything that no packet brings is loaded before the first packet is sent. From there to the words of the cluster,
/// nothing waits for memory but the packets themselves.
#[test]
fn loads_come_first_and_nothing_waits_behind_the_packets() {
    if skipped() {
        return;
    }
    let bf16 = Form::plain(Scalar::BF16);
    let quantised = Form { out: Scalar::E4M3, per_token: true, ..bf16 };
    for (form, split, threads, most) in [(bf16, 8, 128, 380), (bf16, 4, 256, 380), (quantised, 8, 128, 760)] {
        let kernel = compiled(form, split, threads);
        let all = &kernel.insts;
        let name = format!("{split} CTAs of {threads} threads, {}", form.out);
        for never in ["STL", "LDL", "BAR"] {
            assert_eq!(kernel.count(never), 0, "{name}: {never}");
        }
        // Divisions by scales have a slow way for denormal numbers, a function of about 200 instructions.
        assert!(form.out == Scalar::E4M3 || kernel.count("CALL") == 0, "{name}: a call");
        let strong = |i: &Inst| i.opcode.contains("STRONG.SYS");
        let (sends, polls): (Vec<_>, Vec<_>) = (
            places(all, "STG").into_iter().filter(|at| strong(&all[*at])).collect(),
            places(all, "LDG").into_iter().filter(|at| strong(&all[*at])).collect(),
        );
        assert_eq!(sends.len(), 2, "{name}: packets of a vector");
        assert_eq!(polls.len(), 4, "{name}: packets are looked at once, and again in the loop");
        let loads: Vec<_> = places(all, "LDG").into_iter().filter(|at| !strong(&all[*at])).collect();
        // Hidden states, residual, weights, the epoch and the address of the other PE.
        assert_eq!(loads.len(), 5, "{name}");
        assert!(loads.iter().all(|at| *at < sends[0]), "{name}: {loads:?} before {sends:?}");
        let fences = places(all, "MEMBAR");
        assert!(fences.iter().all(|at| *at < loads[0]), "{name}: a fence behind the first load");
        assert!(all.len() < most, "{name}: {} instructions", all.len());
    }
}
