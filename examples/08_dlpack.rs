//! Exports a symmetric tensor with DLPack and imports it again, as PyTorch or CuPy would. Nothing
//! is copied, and the memory lives until both sides have dropped it.

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

    // A capsule named "dltensor_versioned" holds the pointer that `into_raw` of this returns.
    let exported = x.to_dlpack::<DLManagedTensorVersioned>()?;
    let address = x.address();
    drop(x);

    // The importing side. All work on the tensor is done, because `copy_from` has waited for it.
    // SAFETY: the tensor was exported above, so it is valid for DLPack.
    #[allow(unsafe_code, reason = "DLPack hands addresses over on trust")]
    let imported: ImportedTensor<f32> = unsafe { ImportedTensor::from_dlpack(exported)? };
    if imported.address() != address || imported.layout().to_string() != "(2,512):(512,1)" {
        return Err(format!("another tensor came back: {imported:?}").into());
    }

    // The imported tensor can be the local side of a put, like any other memory of this GPU.
    let y = world.zeros::<f32>([2, 512])?;
    world.put(&y, &imported, (me + 1) % n_pes, stream)?;
    world.team().barrier(stream)?;
    let previous = (me + n_pes - 1) % n_pes;
    if y.to_vec(stream)? != [previous as f32; 1024] {
        return Err(format!("PE {me} has different data than PE {previous}'s tensor").into());
    }
    drop(imported);
    world.collect()?; // frees the memory, which no PE uses any more
    println!("PE {me}: received PE {previous}'s tensor, through DLPack");
    Ok(())
}
