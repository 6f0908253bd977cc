//! Tests of symmetric memory: allocation, peers, copies, registration, DLPack, leaks.

use crate::check::{Case, Checked, Num, Outcome, data, datum};
use crate::{ensure, for_numbers, same};
use weft::runtime::dlpark::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use weft::runtime::{DeviceTensor, ImportedTensor, SymmetricTensor, World, error};
use weft_run::Npy;

pub const CASES: &[Case] = &[
    Case::new("memory::tensors_and_peers", tensors_and_peers),
    Case::new("memory::allocating_and_freeing_many_times", many_times),
    Case::new("memory::external_memory_is_registered", external),
    Case::new("memory::dlpack_keeps_ownership", dlpack),
    Case::new("memory::npy_files", npy),
    Case::new("memory::too_much_is_an_error_on_every_pe", too_much),
    Case::new("memory::until_it_is_full", until_full),
    Case::new("memory::leaks_are_reported", leaks).judged(leaks_judged),
    Case::new("memory::multicast_is_none_with_a_reason", no_multicast),
];

fn tensors_and_peers(world: &World) -> Checked {
    fn of_type<T: Num>(world: &World) -> Checked {
        for n in [1usize, 7, 4096, 100_003] {
            let (me, stream) = (world.my_pe(), world.stream());
            let x: SymmetricTensor<T> = world.tensor(n)?;
            x.copy_from(&data(me, n, 0), stream)?;
            world.barrier()?;
            for pe in 0..world.n_pes() {
                same!(x.peer(pe)?.to_vec(stream)?, data::<T>(pe, n, 0), "{n} elements of PE {pe}");
            }
            world.barrier()?;
            // The PE writes into the next PE's copy by its address, and reads its own copy.
            let next = (me + 1) % world.n_pes();
            x.peer(next)?.copy_from(&data(me, n, 1), stream)?;
            world.barrier()?;
            let previous = (me + world.n_pes() - 1) % world.n_pes();
            same!(x.to_vec(stream)?, data::<T>(previous, n, 1), "{n} elements from PE {previous}");
            let part = x.slice(n / 2..n)?;
            same!(part.to_vec(stream)?, data::<T>(previous, n, 1)[n / 2..], "a slice of {n}");
        }
        Ok(())
    }
    for_numbers!(of_type(world));
    let x: SymmetricTensor<f32> = world.zeros([3, 5])?;
    same!(x.to_vec(world.stream())?, vec![0.0; 15], "zeros");
    same!(x.layout().to_string(), "(3,5):(5,1)", "the last extent is fastest");
    same!(x.peer(world.n_pes()).unwrap_err().code, error::NOT_IN_TEAM, "a PE that is not there");
    same!(x.slice(10..16).unwrap_err().code, error::SHAPE, "a slice past the end");
    same!(x.copy_from(&[0.0; 14], world.stream()).unwrap_err().code, error::SHAPE, "too few elements");
    Ok(())
}

fn many_times(world: &World) -> Checked {
    let mut kept = Vec::new();
    for round in 0..200u32 {
        let n = 1 + (round as usize * 7919) % 300_000;
        let x: SymmetricTensor<u32> = world.tensor(n)?;
        ensure!(x.address().is_multiple_of(256), "an address of {:#x}", x.address());
        x.copy_from(&vec![round; n], world.stream())?;
        if round % 3 == 0 {
            kept.push((round, x));
        }
        if round % 7 == 6 {
            kept.remove(kept.len() / 2);
        }
    }
    for (round, x) in &kept {
        ensure!(
            x.to_vec(world.stream())?.iter().all(|v| v == round),
            "allocation of round {round} was overwritten"
        );
    }
    Ok(())
}

fn external(world: &World) -> Checked {
    let (me, stream) = (world.my_pe(), world.stream());
    let n = 1 << 16;
    let buffer = world.register(world.vmm(n * 4)?)?;
    ensure!(buffer.bytes() >= n * 4, "{} bytes", buffer.bytes());
    let x: SymmetricTensor<u32> = SymmetricTensor::view(buffer.clone(), 256, n / 2)?;
    x.copy_from(&data(me, n / 2, 0), stream)?;
    world.barrier()?;
    let next = (me + 1) % world.n_pes();
    let y: DeviceTensor<u32> = DeviceTensor::zeros(x.layout(), stream)?;
    world.get(&y, &x, next, stream)?;
    same!(y.to_vec(stream)?, data::<u32>(next, n / 2, 0), "registered memory of PE {next}");
    world.barrier()?;
    drop((x, buffer));
    // NVSHMEM cannot register this memory: it is plain, and has an odd size.
    let plain: DeviceTensor<u8> = DeviceTensor::zeros(1 << 20, stream)?;
    // SAFETY: the call is rejected.
    #[allow(unsafe_code, reason = "the address is rejected before it is used")]
    let refused = unsafe { world.register_raw(plain.address(), 12345) };
    same!(refused.unwrap_err().code, error::REGISTER, "12345 bytes");
    Ok(())
}

fn dlpack(world: &World) -> Checked {
    let (me, stream) = (world.my_pe(), world.stream());
    let x: SymmetricTensor<f32> = world.tensor([4, 1000])?;
    x.copy_from(&data(me, 4000, 0), stream)?;
    // The tensor is exported, dropped here, and imported: the memory lives as long as the import.
    let exported = x.to_dlpack::<DLManagedTensorVersioned>()?;
    same!(exported.validate()?.shape(), [4, 1000], "shape");
    same!(exported.validate()?.strides(), Some(&[1000i64, 1][..]), "strides");
    drop(x);
    // SAFETY: the tensor was made above, and nothing uses it.
    #[allow(unsafe_code, reason = "DLPack passes addresses")]
    let imported: ImportedTensor<f32> = unsafe { ImportedTensor::from_dlpack(exported)? };
    let y: SymmetricTensor<f32> = world.tensor([4, 1000])?;
    world.put(&y, &imported, (me + 1) % world.n_pes(), stream)?;
    world.team().barrier(stream)?;
    let previous = (me + world.n_pes() - 1) % world.n_pes();
    same!(y.to_vec(stream)?, data::<f32>(previous, 4000, 0), "put from an import");
    world.collect()?;
    drop(imported);
    world.collect()?;
    // This uses the old format, and a tensor of this GPU alone.
    let z = DeviceTensor::from_slice(&data::<i64>(me, 77, 2), stream)?;
    let exported = z.into_dlpack::<DLManagedTensor>()?;
    // SAFETY: as above.
    #[allow(unsafe_code, reason = "DLPack passes addresses")]
    let wrong = unsafe { ImportedTensor::<f64>::from_dlpack(exported) };
    same!(wrong.unwrap_err().code, error::DLPACK, "i64 as f64");
    Ok(())
}

/// Checks that a file has C order, whatever order the memory has, and that gaps keep their
/// contents.
fn npy(world: &World) -> Checked {
    let stream = world.stream();
    let file = std::env::temp_dir().join(format!("weft-gpu-{}-{}.npy", std::process::id(), world.my_pe()));
    let rows: SymmetricTensor<half::bf16> = world.tensor([3, 5])?;
    rows.copy_from(&data(world.my_pe(), 15, 4), stream)?;
    rows.save_npy(&file, stream)?;
    // The layout has columns with a gap after each.
    let columns: SymmetricTensor<half::bf16> = world.zeros("(3,5):(1,4)")?;
    columns.load_npy(&file, stream)?;
    let (have, want) = (columns.to_vec(stream)?, data::<half::bf16>(world.my_pe(), 15, 4));
    for (i, want) in want.iter().enumerate() {
        same!(have[i / 5 + i % 5 * 4], *want, "element {i}");
    }
    same!(have[3], half::bf16::ZERO, "a gap");
    let back: DeviceTensor<half::bf16> = DeviceTensor::zeros([3, 5], stream)?;
    columns.save_npy(&file, stream)?;
    back.load_npy(&file, stream)?;
    same!(back.to_vec(stream)?, want, "there and back");
    let other: SymmetricTensor<f32> = world.tensor([3, 5])?;
    let e = other.load_npy(&file, stream).err().ok_or("bf16 as f32")?;
    ensure!(e.to_string().contains("R0307"), "{e}");
    std::fs::remove_file(&file)?;
    Ok(())
}

fn too_much(world: &World) -> Checked {
    let (_, total) = world.device().memory()?;
    let e = world.buffer(total * 2).unwrap_err();
    same!(e.code, error::OUT_OF_MEMORY, "twice the GPU's memory");
    ensure!(e.message.contains("PE "), "{e}");
    // The world still works.
    let x: SymmetricTensor<u8> = world.zeros(1000)?;
    same!(x.to_vec(world.stream())?, vec![0; 1000], "after the error");
    let e = world.buffer(0).unwrap_err();
    same!(e.code, error::SHAPE, "0 bytes");
    Ok(())
}

/// Checks that the heap grows until it is full, that every PE reports this, and that all of it can
/// be used again.
fn until_full(world: &World) -> Checked {
    const STEP: usize = 8 << 30;
    for round in 0..2 {
        let mut all = Vec::new();
        let e = loop {
            match world.buffer(STEP) {
                Ok(buffer) => all.push(buffer),
                Err(e) => break e,
            }
        };
        same!(e.code, error::OUT_OF_MEMORY, "after {} allocations in round {round}", all.len());
        let (_, total) = world.device().memory()?;
        ensure!(all.len() * STEP > total / 2, "{} allocations of {total} bytes: {e}", all.len());
        for (i, buffer) in all.iter().enumerate() {
            buffer.write(STEP - 8, &(i as u64).to_le_bytes(), world.stream())?;
        }
        world.barrier()?;
        for (i, buffer) in all.iter().enumerate() {
            let mut last = [0; 8];
            buffer.read((world.my_pe() + 1) % world.n_pes(), STEP - 8, &mut last, world.stream())?;
            same!(u64::from_le_bytes(last), i as u64, "the end of allocation {i}");
        }
        world.barrier()?;
    }
    Ok(())
}

fn leaks(world: &World) -> Checked {
    let x: SymmetricTensor<u8> = world.tensor(12345)?;
    let leaks = world.clone().finalize()?;
    same!(leaks.len(), 1, "leaks");
    same!((leaks[0].bytes, leaks[0].place.contains("memory.rs")), (12345, true), "{}", leaks[0]);
    same!(x.to_vec(world.stream()).unwrap_err().code, error::FINALIZED, "use after the end");
    same!(world.barrier().unwrap_err().code, error::FINALIZED, "a barrier after the end");
    Ok(())
}

fn leaks_judged(o: &Outcome) -> Result<(), String> {
    match (o.err.contains("not freed at finalize"), o.err.contains("R0305")) {
        // The case itself finalizes, so the end of the program fails with the corresponding code.
        (true, true) => Ok(()),
        _ => Err("no report of the leak".into()),
    }
}

fn no_multicast(world: &World) -> Checked {
    let x: SymmetricTensor<u64> = world.tensor(64)?;
    let team = world.team();
    match (x.multicast(&team), x.buffer().why_no_multicast(&team)) {
        (None, Some(why)) => ensure!(!why.is_empty(), "no reason"),
        (Some(m), None) => ensure!(m.address() != 0, "a null address"),
        (m, why) => return Err(format!("{m:?} and {why:?}").into()),
    }
    same!(datum::<u64>(0, 0, 0), datum::<u64>(0, 0, 0), "data is a function");
    Ok(())
}
