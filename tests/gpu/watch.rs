//! Tests of waits that report themselves, in jobs on GPUs whose kernels do not end.

#[path = "../support/waiting.rs"]
mod waiting;

use crate::check::{Case, Checked, Outcome};
use std::time::Duration;
use weft::gpu::Grid;
use weft::runtime::World;

/// The limit of the host's waits. Kernels report after half of it.
const BOUND: &[(&str, &str)] = &[("WEFT_TIMEOUT", "4"), ("WEFT_WATCH", "1")];

/// The host goes on waiting. Kernels report after half of the limit.
const REPORTS: &[(&str, &str)] = &[("WEFT_TIMEOUT", "2"), ("WEFT_WATCH", "report")];

/// The time for a job to start, reach its limit and end. A PE that does not end by itself is ended
/// 3 seconds after the failure.
const MAX_SECONDS: f64 = 20.0;

pub const CASES: &[Case] = &[
    Case::new("watch::a_kernel_that_spins_for_ever", waiting::spins_for_ever).env(BOUND).judged(|o| {
        says(o, &["launch 2", "thread 3 waits at waiting.weft:3", "`flags[5]`, which is 0 and must be >= 9"])
    }),
    Case::new("watch::a_pe_that_launches_another_size", waiting::another_size).pes(2).env(BOUND).judged(
        |o| says(o, &["PE 0: `steps`, launch 1, CTA 0, thread 0 waits at waiting.weft:2", "`sync[0]`"]),
    ),
    Case::new("watch::a_graph_that_one_pe_replays_alone", waiting::replayed_on_one_pe)
        .pes(2)
        .env(BOUND)
        .judged(|o| {
            says(o, &["PE 0: `steps`, launch 2", "may depend on PE 1", "its host waits in `barrier`"])
        }),
    Case::new("watch::packets_that_do_not_come", |w| waiting::allreduce_of_one_pe(w, &waiting::LL))
        .pes(2)
        .env(BOUND)
        .judged(|o| {
            says(o, &["PE 0: `ll_in_place`, launch 1", "`ws[0, 0, 1, 0, 0]`, which is 0 and must be == 1"])
        }),
    Case::new("watch::data_that_does_not_come", |w| waiting::allreduce_of_one_pe(w, &waiting::LAMPORT))
        .pes(2)
        .env(BOUND)
        .judged(|o| {
            let element = "`cells[0, 0, 1, 0, 0]`, which is 0 and must be != 0";
            says(o, &["PE 0: `lamport_in_place`, launch 1", element])
        }),
    Case::new("watch::numbers_of_all_types", waiting::numbers_of_all_types).env(BOUND).judged(|o| {
        says(o, &["`flags[2, 1]`, which is 0 and must be == -5", "goal = -5, scale = 0.5, eps = 0.010009766"])
    }),
    Case::new("watch::a_report_goes_on", |w| late_but_complete(w, Duration::from_secs(6)))
        .pes(2)
        .env(REPORTS)
        .judged(|o| {
            let kernel = "weft: the stream is not done after 2 s:";
            let waits = "PE 0: `steps`, launch 1, CTA 0, thread 0 waits at waiting.weft:2";
            let host = "weft: PE 1: `barrier` is not complete after 2 s:";
            finishes(o, &[kernel, waits, "may depend on PE 1", host, "PE 1: its host waits in `barrier`"])
        }),
    Case::new("watch::hosts_that_wait_elsewhere", |w| hosts_that_wait_elsewhere(w, Duration::from_secs(60)))
        .pes(2)
        .env(BOUND)
        .judged(|o| {
            let found = "weft: PE 0: a kernel has waited for more than 2 s:";
            let waits = "PE 0: `steps`, launch 1, CTA 0, thread 0 waits at waiting.weft:2";
            says(o, &[found, waits, "PE 1: no wait was reported; the last launch was `steps`", "rounds = 2"])
        }),
    Case::new("watch::hosts_that_wait_elsewhere_and_go_on", |w| {
        hosts_that_wait_elsewhere(w, Duration::from_secs(8))
    })
    .pes(2)
    .env(REPORTS)
    .judged(|o| finishes(o, &["weft: PE 0: a kernel has waited for more than 1 s:", "rounds = 3"])),
    Case::new("watch::waits_beyond_the_ring", |w| waiting::many_wait(w, 132))
        .env(BOUND)
        .judged(|o| says(o, &["`spin`: 4 more waits were reported, but the buffer was full"])),
    Case::new("watch::a_pe_killed_while_others_wait", killed).pes(2).env(BOUND).judged(|o| {
        match o.err.contains("signal 9") && o.seconds < MAX_SECONDS {
            true => Ok(()),
            false => Err("nothing says in time that PE 1 was killed".into()),
        }
    }),
];

/// PE 1 is killed before it launches the kernel for which PE 0 waits.
fn killed(world: &World) -> Checked {
    if world.my_pe() == 1 {
        // Dropping it would be a collective step of all PEs.
        std::mem::forget(world.kernel_barrier(1)?);
        let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    }
    waiting::another_size(world)
}

/// The last PE launches its part after the limit of the others. Then all end well.
fn late_but_complete(world: &World, late: Duration) -> Checked {
    let kernel = waiting::steps(world)?;
    let sync = world.kernel_barrier(1)?;
    if world.my_pe() + 1 == world.n_pes() {
        std::thread::sleep(late);
    }
    kernel.launch(world.stream(), Grid::of(1), (3i64, &sync, &world.team()))?;
    world.stream().synchronize()?;
    // The first PE comes late to the meeting of the hosts.
    if world.my_pe() == 0 {
        std::thread::sleep(late);
    }
    Ok(world.barrier()?)
}

/// The last PE executes one barrier less than the others, and no host waits in this library for this
/// time. After it, the last PE executes the missing barrier, so that all end well.
fn hosts_that_wait_elsewhere(world: &World, long: Duration) -> Checked {
    let kernel = waiting::steps(world)?;
    let sync = world.kernel_barrier(1)?;
    let last = world.my_pe() + 1 == world.n_pes();
    let rounds = if last { 2i64 } else { 3 };
    kernel.launch(world.stream(), Grid::of(1), (rounds, &sync, &world.team()))?;
    std::thread::sleep(long);
    if last {
        kernel.launch(world.stream(), Grid::of(1), (1i64, &sync, &world.team()))?;
    }
    world.stream().synchronize()?;
    Ok(world.barrier()?)
}

/// Checks that the job fails within its limit, and that its errors contain these words.
fn says(o: &Outcome, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|w| !o.err.contains(**w)) {
        Some(word) => Err(format!("nothing says {word:?}")),
        None if o.code == Some(0) => Err("the job ended well".into()),
        None if o.seconds > MAX_SECONDS => Err("it took longer than its bound".into()),
        None => Ok(()),
    }
}

/// Checks that the job ends well, and that it has printed these words.
fn finishes(o: &Outcome, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|w| !o.err.contains(**w)) {
        Some(word) => Err(format!("nothing says {word:?}")),
        None if o.code != Some(0) => Err(format!("the job ended with {:?}", o.code)),
        None => Ok(()),
    }
}
