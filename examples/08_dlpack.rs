//! A symmetric tensor given away by DLPack and taken back, as PyTorch or CuPy would: no copy, and the memory lives as
//! long as anybody has it.

use std::error::Error;
use std::process::ExitCode;
use weft::runtime::dlpark::ffi::DLManagedTensorVersioned;
use weft::runtime::{ImportedTensor, World, on_every_pe};

fn main() -> ExitCode {
    on_every_pe(dlpack)
}

pub(crate) fn dlpack(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let x = world.tensor::<f32>([2, 512])?;
    x.copy_from(&[me as f32; 1024], stream)?;

    // `into_raw` of this is what a capsule named "dltensor_versioned" holds.
    let exported = x.to_dlpack::<DLManagedTensorVersioned>()?;
    let address = x.address();
    drop(x);

    // The other side. All work on the tensor is done: `copy_from` has waited for it.
    // SAFETY: it was exported above, so it is as DLPack wants it.
    #[allow(unsafe_code, reason = "DLPack hands addresses over on trust")]
    let imported: ImportedTensor<f32> = unsafe { ImportedTensor::from_dlpack(exported)? };
    if imported.address() != address || imported.layout().to_string() != "(2,512):(512,1)" {
        return Err(format!("another tensor came back: {imported:?}").into());
    }

    // It is the local side of a put like any other memory of this GPU.
    let y = world.zeros::<f32>([2, 512])?;
    world.put(&y, &imported, (me + 1) % n_pes, stream)?;
    world.team().barrier(stream)?;
    let previous = (me + n_pes - 1) % n_pes;
    if y.to_vec(stream)? != [previous as f32; 1024] {
        return Err(format!("PE {me} has other data than PE {previous}'s tensor").into());
    }
    drop(imported);
    world.collect()?; // now it is nobody's, on every PE, and freed
    println!("PE {me}: PE {previous}'s tensor, by DLPack");
    Ok(())
}
