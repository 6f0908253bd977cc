//! Tests of worlds without NVSHMEM: two of them in a process, and memory that other code has
//! allocated.

use crate::check::{Case, Checked, data};
use crate::{ensure, same};
use weft::gpu::{Grid, Kernel};
use weft::runtime::job::ProcessRank;
use weft::runtime::{Config, DeviceTensor, Mapping, Memory, SymmetricTensor, World, error};

pub const CASES: &[Case] = &[
    Case::new("local::two_worlds", two_worlds),
    Case::new("local::memory_of_cudas_allocator", ordinary_memory),
    Case::new("local::memory_that_others_have_mapped", adopted),
];

const N: usize = 1003;

/// A kernel in which each PE adds the next one's elements to its own.
const ADD: &str =
    "kernel add<N: int>(x: symm<f32, (N):(1)>, y: symm<f32, (N):(1)>, sync: barrier, team: team) block(64) grid(1) {
    barrier(sync, team, acq_rel, sys);
    for i in 0..(N + 63) / 64 {
        let at = i * 64 + thread_idx();
        if at < N { y[at] = x[at] + peer(x, (my_pe() + 1) % n_pes())[at]; }
    }
}";

/// Another world of this process in the same job.
fn another(world: &World) -> Result<World, weft::runtime::Error> {
    let place = ProcessRank::detect()?.unwrap_or_else(ProcessRank::alone);
    let config = Config::default().memory(Some(Memory::Local));
    // All PEs have left the rendezvous of the first world.
    world.barrier()?;
    World::join(&place, &config)
}

/// Tests a kernel that reads a peer's copy of a tensor, whoever allocated its memory.
fn added(world: &World, x: &SymmetricTensor<f32>) -> Checked {
    let (me, n, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let (y, sync) = (world.zeros::<f32>(N)?, world.kernel_barrier(1)?);
    let kernel = Kernel::compile(world, ADD, &[("N", weft::Define::Int(N as i64))])?;
    for round in 0..3 {
        x.copy_from(&data(me, N, round), stream)?;
        kernel.launch(stream, Grid::of(1), (x, &y, &sync, &world.team()))?;
        let (own, next) = (data::<f32>(me, N, round), data::<f32>((me + 1) % n, N, round));
        let sums: Vec<f32> = own.iter().zip(&next).map(|(a, b)| a + b).collect();
        same!(y.to_vec(stream)?, sums, "round {round}");
        world.barrier()?;
    }
    Ok(())
}

fn two_worlds(world: &World) -> Checked {
    ensure!(world.nvshmem_version().is_none(), "this world has NVSHMEM");
    let second = another(world)?;
    let (x, y) = (world.zeros::<f32>(N)?, second.zeros::<f32>(N)?);
    added(world, &x)?;
    added(&second, &y)?;
    added(world, &x)?;
    let team = world.team().split_strided(0, 1, world.n_pes())?;
    team.iter().try_for_each(|team| team.barrier(world.stream()))?;
    drop(y);
    second.finalize()?;
    added(world, &x)
}

fn ordinary_memory(world: &World) -> Checked {
    let memory = DeviceTensor::<f32>::zeros(4 * N, world.stream())?;
    // SAFETY: the memory outlives the buffer.
    #[allow(unsafe_code, reason = "the address is a tensor's")]
    let buffer = unsafe { world.register_raw(memory.address() + 1024, N * 4)? };
    let x = SymmetricTensor::view(buffer, 0, N)?;
    added(world, &x)?;
    drop(x);
    // Memory of the host does not belong to a GPU.
    let own = vec![0u8; 4096];
    // SAFETY: the call is rejected.
    #[allow(unsafe_code, reason = "the address is rejected before it is used")]
    let refused = unsafe { world.register_raw(own.as_ptr() as u64, 4096) };
    same!(refused.unwrap_err().code, error::REGISTER, "memory of the host");
    Ok(())
}

fn adopted(world: &World) -> Checked {
    // The rendezvous of another library returns an address for each PE.
    let second = another(world)?;
    let made = second.tensor::<f32>(N)?;
    let copies = (0..world.n_pes()).map(|pe| Ok(made.peer(pe)?.address()));
    let copies = copies.collect::<Result<Vec<u64>, weft::runtime::Error>>()?;
    let mapping = Mapping { bytes: N * 4, copies, multicast: None };
    // SAFETY: `made` keeps the memory, which outlives the buffer.
    #[allow(unsafe_code, reason = "the addresses are a tensor's")]
    let (buffer, twice) = unsafe { (world.adopt(mapping.clone())?, world.adopt(mapping)) };
    same!(twice.unwrap_err().code, error::REGISTER, "the same memory twice");
    let x = SymmetricTensor::view(buffer, 0, N)?;
    added(world, &x)?;
    drop(x);
    let none = Mapping { bytes: 64, copies: vec![0; world.n_pes() as usize], multicast: None };
    // SAFETY: the call is rejected.
    #[allow(unsafe_code, reason = "the addresses are rejected")]
    let refused = unsafe { world.adopt(none) };
    same!(refused.unwrap_err().code, error::REGISTER, "no addresses");
    drop(made);
    second.finalize()?;
    Ok(())
}
