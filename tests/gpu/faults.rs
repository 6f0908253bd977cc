//! Tests of failures: every PE gets an error that describes the problem, nothing hangs, and no
//! process is left behind.

use crate::check::{Case, Checked, Outcome};
use crate::{ensure, same};
use std::time::{Duration, Instant};
use weft::gpu::Grid;
use weft::runtime::{Compare, DeviceTensor, Reduce, SymmetricTensor, World, error};

pub const CASES: &[Case] = &[
    Case::new("faults::unequal_sizes", unequal_sizes).pes(2),
    Case::new("faults::another_order", another_order).pes(2),
    Case::new("faults::drops_in_another_order", drops_in_another_order).pes(2),
    Case::new("faults::one_pe_has_too_little_memory", too_little).pes(2),
    Case::new("faults::a_pe_that_does_not_come", late)
        .pes(2)
        .env(&[("WEFT_TIMEOUT", "3")])
        .judged(late_judged),
    Case::new("faults::collectives_that_differ", differ).pes(2),
    Case::new("faults::a_signal_that_nobody_sends", nobody_signals)
        .env(&[("WEFT_TIMEOUT", "3")])
        .judged(nobody_signals_judged),
    Case::new("faults::no_peer_access", no_peer_access)
        .pes(2)
        .env(&[("NVSHMEM_DISABLE_P2P", "1")])
        .judged(no_peer_access_judged),
    Case::new("faults::a_second_start", second_start),
    Case::new("faults::more_pes_than_gpus", nothing)
        .pes(2)
        .env(&[("CUDA_VISIBLE_DEVICES", "0")])
        .judged(|o| fails_with(o, "R0102")),
    Case::new("faults::no_nvshmem", nothing)
        .env(&[("WEFT_NVSHMEM", "/nowhere/libnvshmem_host.so.3")])
        .judged(|o| fails_with(o, "R0104")),
    Case::new("faults::a_pe_that_fails", fails).pes(2).judged(fails_judged),
    Case::new("faults::a_pe_killed_while_others_wait_on_the_gpu", killed).pes(2).judged(killed_judged),
    Case::new("faults::an_assert_that_does_not_hold", asserts).judged(asserts_judged),
    Case::new("faults::a_pe_that_panics", panics).pes(2).judged(panics_judged),
];

fn unequal_sizes(world: &World) -> Checked {
    let bytes = 1000 + 24 * world.my_pe() as usize;
    let e = world.buffer(bytes).unwrap_err();
    same!(e.code, error::COLLECTIVE, "unequal sizes");
    same!(e.message.contains("1000") && e.message.contains("1024"), true, "{e}");
    // All PEs got the same error, so they are still in step.
    let x: SymmetricTensor<u8> = world.zeros(100)?;
    drop(x);
    Ok(())
}

fn another_order(world: &World) -> Checked {
    let met = match world.my_pe() {
        0 => world.buffer(64).map(drop),
        _ => world.barrier(),
    };
    same!(met.unwrap_err().code, error::COLLECTIVE, "an allocation and a barrier");
    world.barrier()?;
    Ok(())
}

fn drops_in_another_order(world: &World) -> Checked {
    let (x, y) = (world.buffer(64)?, world.buffer(128)?);
    // Both drops are rejected with a message on standard error, and nothing hangs.
    match world.my_pe() {
        0 => {
            drop(x);
            drop(y);
        }
        _ => {
            drop(y);
            drop(x);
        }
    }
    let leaks = world.clone().finalize()?;
    same!(leaks.len(), 2, "leaks");
    std::process::exit(0);
}

/// Checks that all PEs report the PE whose memory is too small, before NVSHMEM is called.
fn too_little(world: &World) -> Checked {
    let (free, _) = world.device().memory()?;
    let hog = match world.my_pe() {
        1 => Some(DeviceTensor::<u8>::alloc(world.device(), free - (3 << 30))?),
        _ => None,
    };
    let e = world.buffer(8 << 30).unwrap_err();
    same!(e.code, error::OUT_OF_MEMORY, "8 GiB, of which PE 1 has 3");
    ensure!(e.message.contains("PE 1 has"), "{e}");
    drop(hog);
    let x: SymmetricTensor<u8> = world.zeros(1 << 30)?;
    same!(x.len(), 1 << 30, "a GiB after that");
    Ok(())
}

/// A kernel in which the last thread of the last PE's last CTA finds a wrong value.
const ASSERTS: &str = "kernel asserts(x: global<u32, (192):(1)>, me: u32) block(64) grid(3) {
    let i = block_idx() * 64 + thread_idx();
    assert(x[i] == i * 5 + me, \"what the host wrote\");
}";

fn asserts(world: &World) -> Checked {
    let (me, stream) = (world.my_pe(), world.stream());
    let kernel = weft::gpu::Kernel::compile(world, ASSERTS, &[])?;
    let mut data: Vec<u32> = (0..192).map(|i| i * 5 + me).collect();
    let x = DeviceTensor::<u32>::zeros(192, stream)?;
    x.copy_from(&data, stream)?;
    kernel.launch(stream, Grid::kernel(), (&x, me))?;
    stream.synchronize()?;
    data[191] += u32::from(me + 1 == world.n_pes());
    x.copy_from(&data, stream)?;
    kernel.launch(stream, Grid::kernel(), (&x, me))?;
    stream.synchronize()?;
    world.barrier()?;
    Err("the assert held".into())
}

/// Checks that the PE with the failure reports it, and that the driver or the simulator names the
/// assert and the thread.
fn asserts_judged(o: &Outcome) -> Result<(), String> {
    let simulated = ["error[R0403]", "what the host wrote (", "CTA (2, 0, 0), thread (63, 0, 0)"];
    let gpu = ["error[R0404]", "`what the host wrote` failed", "block: [2,0,0], thread: [63,0,0]"];
    let said = |words: &[&str]| words.iter().all(|word| o.err.contains(word));
    match o.code != Some(0) && (said(&simulated) || said(&gpu)) {
        true => Ok(()),
        false => Err("nobody says which assert it was, in which CTA and thread".into()),
    }
}

/// Checks that waits have a limit and name the PE that is awaited.
fn late(world: &World) -> Checked {
    if world.my_pe() == 1 {
        std::thread::sleep(Duration::from_secs(6));
        world.fail("it came too late");
        return Ok(());
    }
    let began = Instant::now();
    let e = world.barrier().unwrap_err();
    ensure!(began.elapsed() < Duration::from_secs(5), "{e} after {:?}", began.elapsed());
    same!(e.code, error::COLLECTIVE, "{e}");
    ensure!(e.message.contains("PE 1"), "{e}");
    Err(format!("as it should be: {e}").into())
}

fn late_judged(o: &Outcome) -> Result<(), String> {
    match o.err.contains("as it should be: error[R0301]") && o.seconds < 30.0 {
        true => Ok(()),
        false => Err("no R0301 of a PE that did not come".into()),
    }
}

/// Checks that PEs which make different calls on streams get errors: other sizes, other types,
/// other operations.
fn differ(world: &World) -> Checked {
    let (team, stream) = (world.team(), world.stream());
    let (x, y): (SymmetricTensor<f32>, SymmetricTensor<f32>) = (world.zeros(64)?, world.zeros(64)?);
    let odd = world.my_pe() % 2 == 1;
    let n = if odd { 32 } else { 64 };
    let e = team.reduce(Reduce::Sum, &y.slice(0..n)?, &x.slice(0..n)?, stream).unwrap_err();
    same!(e.code, error::COLLECTIVE, "unequal sizes");
    ensure!(e.message.contains("32 f32") && e.message.contains("64 f32"), "{e}");
    let e = match odd {
        true => team.barrier(stream),
        false => team.reduce(Reduce::Max, &y, &x, stream),
    };
    same!(e.unwrap_err().code, error::COLLECTIVE, "a barrier and a reduce");
    let e = team.broadcast(&y, &x, u32::from(odd), stream).unwrap_err();
    same!(e.code, error::COLLECTIVE, "two roots");
    // Nothing was started, so all PEs are still in step.
    team.reduce(Reduce::Sum, &y, &x, stream)?;
    same!(y.to_vec(stream)?, vec![0.0; 64], "after the errors");
    Ok(())
}

/// All PEs wait on their GPUs for ever. No PE dies, and the wait ends nevertheless.
fn nobody_signals(world: &World) -> Checked {
    let signal = world.signal()?;
    world.signal_wait(&signal, Compare::Ne, 0, world.stream())?;
    let began = Instant::now();
    let e = signal.get(world.stream()).unwrap_err();
    ensure!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    same!(e.code, error::NOT_DONE, "{e}");
    let e = world.barrier().unwrap_err();
    same!(e.code, error::NOT_DONE, "{e}");
    Err(format!("as it should be: {e}").into())
}

fn nobody_signals_judged(o: &Outcome) -> Result<(), String> {
    match o.err.contains("as it should be: error[R0402]") && o.seconds < 30.0 {
        true => Ok(()),
        false => Err("no R0402 within the bound".into()),
    }
}

/// Without peer access, NVSHMEM needs a network. Without both, the error says so, and nothing
/// hangs.
fn no_peer_access(world: &World) -> Checked {
    let x: SymmetricTensor<f32> = world.zeros(100)?;
    let next = (world.my_pe() + 1) % world.n_pes();
    let e = x.peer(next).err().ok_or("a peer was reached")?;
    same!(e.code, error::UNREACHABLE, "{e}");
    Err(format!("as it should be: {e}").into())
}

fn no_peer_access_judged(o: &Outcome) -> Result<(), String> {
    match o.code != Some(0) && (o.err.contains("R0304") || o.err.contains("R0106")) {
        true => Ok(()),
        false => Err("neither R0304 nor R0106".into()),
    }
}

fn second_start(world: &World) -> Checked {
    same!(World::init().err().map(|e| e.code), Some(error::STARTED_TWICE), "a second start");
    world.barrier()?;
    Ok(())
}

fn nothing(_: &World) -> Checked {
    Ok(())
}

fn fails_with(o: &Outcome, code: &str) -> Result<(), String> {
    match o.err.contains(code) && o.code != Some(0) {
        true => Ok(()),
        false => Err(format!("expected {code}")),
    }
}

fn fails(world: &World) -> Checked {
    if world.my_pe() == 1 {
        return Err("the reason of PE 1".into());
    }
    world.barrier()?;
    Ok(())
}

/// Checks that the failure's own message comes first, and that the job ends within its limit.
fn ended_with(o: &Outcome, words: &str, code: Option<i32>) -> Result<(), String> {
    match (o.err.find(words), o.err.find("PE 1")) {
        _ if o.seconds > 40.0 => Err(format!("it took {:.0} s", o.seconds)),
        (None, _) => Err(format!("nothing says {words:?}")),
        _ if code.is_some() && o.code != code => Err(format!("status {:?}, expected {code:?}", o.code)),
        _ if o.code == Some(0) => Err("it ended well".into()),
        _ => Ok(()),
    }
}

fn fails_judged(o: &Outcome) -> Result<(), String> {
    ended_with(o, "the reason of PE 1", Some(1))
}

/// PE 0 waits on its GPU for a signal that never comes, while PE 1 is killed.
fn killed(world: &World) -> Checked {
    let signal = world.signal()?;
    if world.my_pe() == 1 {
        std::thread::sleep(Duration::from_millis(500));
        let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    }
    world.signal_wait(&signal, Compare::Eq, 1, world.stream())?;
    world.stream().synchronize()?;
    Ok(())
}

fn killed_judged(o: &Outcome) -> Result<(), String> {
    ended_with(o, "signal 9", Some(128 + 9))
}

fn panics(world: &World) -> Checked {
    let x: SymmetricTensor<u32> = world.zeros(100)?;
    if world.my_pe() == 1 {
        panic!("a panic of PE 1");
    }
    world.barrier()?;
    drop(x);
    Ok(())
}

fn panics_judged(o: &Outcome) -> Result<(), String> {
    ended_with(o, "a panic of PE 1", Some(101))
}
