//! Checks the SASS of kernels with packets: the instructions between their loads, their packets and
//! their results.
//!
//! It needs ptxas and nvdisasm. Without them, the test prints a message and passes, unless
//! `WEFT_REQUIRE_PTXAS=1`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "sass/listing.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod listing;

use listing::{Inst, Kernel, kernels};
use std::io::Write;
use weft::collective::{Algorithm, Collective, Plan, Request};
use weft::fused::{Form, Fused, Plan as FusedPlan};
use weft::ir::Scalar;
use weft::tools::{Tool, assemble_ptx, disassemble};
use weft::{KernelFile, Lowering, Options};

const HIDDEN: usize = 8192;

/// A plan's kernel in SASS for one row of 8192 elements on two PEs.
fn compiled(form: Form, split: u32, threads: u32) -> Kernel {
    let target = "sm_90a".parse().unwrap();
    let plan = FusedPlan::spread(&Fused::ALL[0], 1, 2 * HIDDEN, 132, (split, Some(threads)));
    let (name, text) = plan.kernel.file();
    let mut options = Options::new(target);
    options.lowering = Lowering::Unicast;
    options.kernel = Some(plan.kernel.kernel().into());
    options.defines = plan.defines(form, HIDDEN, 2).into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
    let compiled = KernelFile::parse(name, text).unwrap().compile(&options).unwrap();
    let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
    kernels(&listing).into_values().next().unwrap()
}

/// The positions of instructions with this prefix in a kernel.
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

/// Checks that all data that packets do not bring is loaded before the first packet is sent. From
/// there to the words of the cluster, the code waits for no memory except the packets.
#[test]
fn loads_come_first_and_nothing_waits_behind_the_packets() {
    if skipped() {
        return;
    }
    let bf16 = Form::plain(Scalar::BF16);
    let quantised = Form { out: Scalar::E4M3, per_token: true, ..bf16 };
    for (form, split, threads, max) in [(bf16, 8, 128, 380), (bf16, 4, 256, 380), (quantised, 8, 128, 760)] {
        let kernel = compiled(form, split, threads);
        let all = &kernel.insts;
        let name = format!("{split} CTAs of {threads} threads, {}", form.out);
        for never in ["STL", "LDL", "BAR"] {
            assert_eq!(kernel.count(never), 0, "{name}: {never}");
        }
        // Divisions by scales have a slow path for denormal numbers, a function of about 200
        // instructions.
        assert!(form.out == Scalar::E4M3 || kernel.count("CALL") == 0, "{name}: a call");
        let strong = |i: &Inst| i.opcode.contains("STRONG.SYS");
        let (sends, polls): (Vec<_>, Vec<_>) = (
            places(all, "STG").into_iter().filter(|at| strong(&all[*at])).collect(),
            places(all, "LDG").into_iter().filter(|at| strong(&all[*at])).collect(),
        );
        assert_eq!(sends.len(), 2, "{name}: a vector is sent, and a place of the round before is emptied");
        assert_eq!(polls.len(), 2, "{name}: a place is looked at once, and again in the loop");
        let loads: Vec<_> = places(all, "LDG").into_iter().filter(|at| !strong(&all[*at])).collect();
        // The loads are those of the hidden states, the residual, the weights, the epoch and the
        // address of the other PE.
        assert_eq!(loads.len(), 5, "{name}");
        assert!(loads.iter().all(|at| *at < sends[0]), "{name}: {loads:?} before {sends:?}");
        let fences = places(all, "MEMBAR");
        assert!(fences.iter().all(|at| *at < loads[0]), "{name}: a fence behind the first load");
        assert!(all.len() < max, "{name}: {} instructions", all.len());
    }
}

/// An allreduce of 1 KiB waits for the preceding launch when the address of the other PE is already in
/// a register. After that wait it loads its operand and the count of rounds, and then its packets
/// follow.
#[test]
fn a_small_allreduce_waits_with_its_addresses_known() {
    if skipped() {
        return;
    }
    let target = "sm_90a".parse().unwrap();
    let request = Request::new(Collective::AllReduce, Scalar::BF16, 512, 2);
    let plan = Plan::of(Algorithm::find(Collective::AllReduce, "ll").unwrap(), &request, 132);
    let (file, options) = plan.compilation(&request, target).unwrap();
    let compiled = file.compile(&options).unwrap();
    let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
    let kernel = kernels(&listing).into_values().next().unwrap();
    let all = &kernel.insts;
    let strong = |at: &usize| all[*at].opcode.contains("STRONG.SYS");
    let sends: Vec<_> = places(all, "STG").into_iter().filter(strong).collect();
    let loads: Vec<_> = places(all, "LDG").into_iter().filter(|at| !strong(at)).collect();
    let waits = places(all, "ACQBULK");
    assert_eq!((waits.len(), loads.len()), (1, 3), "{loads:?}");
    assert!(
        loads[0] < waits[0] && waits[0] < loads[1] && loads[2] < sends[0],
        "{loads:?}, {waits:?}, {sends:?}"
    );
    assert_eq!(kernel.count("MEMBAR"), 0);
    assert!(all.len() < 130, "{} instructions", all.len());
}
