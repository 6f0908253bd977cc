//! Tests of waits that report themselves, on simulated PEs. The error for a kernel that does not
//! end names the waiting PE, the place and the element, and the state of the other PEs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/waiting.rs"]
mod waiting;

use std::error::Error;
use weft::runtime::{SimConfig, World, error};
use weft::{Define, KernelFile, Lowering, Options};

/// The error that stops kernels which wait for ever. The limit is a number of steps, because a wait
/// that reads the clock is not a deadlock.
fn stopped(body: impl Fn(&World) -> Result<(), Box<dyn Error>> + Sync) -> String {
    let config = SimConfig::new(2).step_limit(4_000_000);
    let job = World::simulated_with(&config).unwrap();
    let ran = job.run(|world| {
        body(world).map_err(|e| match e.downcast::<weft::runtime::Error>() {
            Ok(e) => *e,
            Err(e) => weft::runtime::Error::new(error::LAUNCH, e.to_string()),
        })
    });
    let e = ran.unwrap_err();
    assert_eq!(e.code, error::SIMULATED, "{e}");
    e.message
}

/// The lines of a report about the kernels of one PE.
fn about(report: &str, pe: u32) -> Vec<&str> {
    let begin = format!("PE {pe}: ");
    let lines = report.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.filter(|line| !line.starts_with("its host")).collect()
}

#[test]
fn a_kernel_that_spins_for_ever() {
    let report = stopped(waiting::spins_for_ever);
    for pe in [0, 1] {
        assert_eq!(
            about(&report, pe),
            [
                "`spin`, launch 2, CTA 0, thread 3 waits at waiting.weft:3 (wait 0) for `flags[5]`, which is 0 and must be \
              >= 9; so do 1 other CTAs",
                "the host launched `spin` last with grid [2, 1, 1], goal = 9",
            ],
            "{report}"
        );
    }
}

#[test]
fn a_pe_that_launches_another_size() {
    let report = stopped(waiting::another_size);
    assert_eq!(
        about(&report, 0),
        [
            "`steps`, launch 1, CTA 0, thread 0 waits at waiting.weft:2 (wait 0) for `sync[0]`, which is 5 and must be >= 6",
            "the host launched `steps` last with grid [1, 1, 1], rounds = 3",
        ],
        "{report}"
    );
    assert_eq!(
        about(&report, 1),
        ["no wait was reported; the last launch was `steps`, launch 1 with grid [1, 1, 1], rounds = 2"],
        "{report}"
    );
    assert!(report.contains("PE 1: its host waits in `barrier` for the other PEs"), "{report}");
}

#[test]
fn a_graph_that_one_pe_replays_alone() {
    let report = stopped(waiting::replayed_on_one_pe);
    assert_eq!(
        about(&report, 0),
        [
            "`steps`, launch 2, CTA 0, thread 0 waits at waiting.weft:2 (wait 0) for `sync[0]`, which is 3 and must be >= 4",
            "the host launched `steps` last with grid [1, 1, 1], rounds = 1",
        ],
        "{report}"
    );
    assert!(about(&report, 1)[0].starts_with("no wait was reported"), "{report}");
}

#[test]
fn a_pe_that_never_launches() {
    let report = stopped(|world| match world.my_pe() {
        0 => waiting::another_size(world),
        // All PEs create this together, so its end is the PE's next step.
        _ => {
            drop(world.kernel_barrier(1)?);
            Ok(())
        }
    });
    assert!(about(&report, 0)[0].contains("for `sync[0]`, which is 1 and must be >= 2"), "{report}");
    assert!(about(&report, 1).is_empty(), "{report}");
    let what = "PE 1: its host waits in `free of allocation 0 of 128 bytes` for the other PEs";
    assert!(report.contains(what), "{report}");
    assert!(report.contains("the waiting threads may depend on PE 1, where no thread waits"), "{report}");
}

/// The waits of a kernel of the library, and its PTX without and with their reports.
fn library(file: &str, kernel: &str, defines: &[(&str, i64)]) -> (Vec<String>, [String; 2]) {
    let name = format!("warpweft/src/library/{file}.weft");
    let file = KernelFile::parse(&name, &std::fs::read_to_string(&name).unwrap()).unwrap();
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.lowering = Lowering::Unicast;
    options.kernel = Some(kernel.into());
    options.defines = defines.iter().map(|(n, v)| ((*n).to_owned(), Define::Int(*v))).collect();
    let plain = file.compile(&options).unwrap();
    options.watch = true;
    let watched = file.compile(&options).unwrap();
    let info = watched.describe().unwrap();
    let waits = info.kernels[0].waits.iter().map(ToString::to_string).collect();
    let listed = watched.explain();
    assert!(
        info.kernels[0].waits.iter().enumerate().all(|(n, w)| listed.contains(&format!("{w}: wait {n}"))),
        "{listed}"
    );
    assert!(plain.describe().unwrap().kernels[0].waits.is_empty());
    (waits, [plain.ptx, watched.ptx])
}

#[test]
fn waits_of_library_kernels_have_numbers() {
    let (waits, [plain, watched]) = library("allreduce", "ll", &[("P", 2)]);
    let at = |waits: &[String]| waits[0].split_once(": ").map(|(_, what)| what.to_owned());
    assert_eq!(
        (waits.len(), at(&waits).as_deref()),
        (1, Some("waits for `ws` to be == a value")),
        "{waits:?}"
    );
    assert!(!plain.contains("%clock64") && watched.contains("%clock64"));
}

/// Checks the packets of a PE that does not send: the element belongs to the missing PE, and the
/// number is the flag's.
#[test]
fn missing_packets_are_reported() {
    let report = stopped(|world| waiting::allreduce_of_one_pe(world, &waiting::LL));
    let line = about(&report, 0)[0];
    // The modes are word, slot, PE, buffer and CTA.
    assert!(line.starts_with("`ll_in_place`, launch 1, "), "{report}");
    assert!(line.contains("for `ws[0, 0, 1, 0, 0]`, which is 0 and must be == 1"), "{report}");
    let report = stopped(|world| waiting::allreduce_of_one_pe(world, &waiting::LAMPORT));
    let line = about(&report, 0)[0];
    assert!(line.starts_with("`lamport_in_place`, launch 1, "), "{report}");
    assert!(line.contains("for `cells[0, 0, 1, 0, 0]`, which is 0 and must be != 0"), "{report}");
    // The simulator does not take the code of the report for the wait. The second launch has begun early.
    assert!(report.contains("warp 0: waits for the launches before its own to end"), "{report}");
    let polls: Vec<_> = report.lines().filter(|line| line.contains(": polls ")).collect();
    assert!(!polls.is_empty(), "{report}");
    assert!(
        polls.iter().all(|line| line.contains("reads 0 and waits for a value other than 0, ")),
        "{report}"
    );
}

/// Arguments have the form of their types, and elements have coordinates.
#[test]
fn numbers_and_elements_have_their_form() {
    let report = stopped(waiting::numbers_of_all_types);
    for pe in [0, 1] {
        assert_eq!(
            about(&report, pe),
            [
                "`typed`, launch 1, CTA 0, thread 3 waits at waiting.weft:5 (wait 0) for `flags[2, 1]`, which is 0 and \
                 must be == -5",
                "the host launched `typed` last with grid [1, 1, 1], goal = -5, scale = 0.5, eps = 0.010009766",
            ],
            "{report}"
        );
    }
}

/// Checks the case that more CTAs wait than the ring has space for.
#[test]
fn waits_beyond_the_ring_are_counted() {
    let report = stopped(|world| waiting::many_wait(world, 150));
    for pe in [0, 1] {
        let lines = about(&report, pe);
        assert!(lines[0].contains("so do 127 other CTAs"), "{report}");
        assert_eq!(lines[1], "`spin`: 22 more waits were reported, but the buffer was full", "{report}");
    }
}
