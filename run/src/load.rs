//! Loads and saves tensors on GPUs as NumPy files.

use crate::RunError;
use crate::array::Array;
use crate::positions::Positions;
use std::path::Path;
use weft_ir::Layout;
use weft_runtime::cuda::Stream;
use weft_runtime::{DType, DeviceTensor, Element, Error, SymmetricTensor, error};

/// Reading and writing `.npy` files. The shape is the layout's, with one dimension for each mode.
/// The order of elements in memory is also the layout's, and gaps between them are not changed.
/// Types that NumPy lacks (bf16, fp8) are stored as unsigned integers of the same width.
pub trait Npy {
    /// Fills this PE's tensor from a file, in stream order, and waits.
    ///
    /// # Errors
    /// Fails if the file is not an array, if it has another shape or element type (R0307), if the
    /// CUDA driver rejects a call (R0103), or after the world has ended (R0305).
    fn load_npy(&self, path: &Path, stream: &Stream) -> Result<(), RunError>;

    /// Writes this PE's tensor to a file, in stream order.
    ///
    /// # Errors
    /// Fails if the file cannot be written, if the CUDA driver rejects a call (R0103), or after the
    /// world has ended (R0305).
    fn save_npy(&self, path: &Path, stream: &Stream) -> Result<(), RunError>;
}

/// Memory with a layout, as bytes.
trait Bytes {
    fn layout(&self) -> &Layout;
    fn read(&self, stream: &Stream) -> Result<Vec<u8>, Error>;
    fn write(&self, bytes: &[u8], stream: &Stream) -> Result<(), Error>;
}

fn positions(layout: &Layout) -> Result<Positions, Error> {
    Positions::new(layout).map_err(|why| Error::new(error::SHAPE, format!("the tensor {why}")))
}

fn load(tensor: &impl Bytes, dtype: DType, path: &Path, stream: &Stream) -> Result<(), RunError> {
    let array = Array::read(path)?;
    let have = array.clone();
    let places = positions(tensor.layout())?;
    let array = array.reinterpret(dtype).ok().filter(|a| a.dtype == dtype && a.shape == places.shape());
    let Some(array) = array else {
        let message =
            format!("{} has {have:?}, but the tensor is {dtype}{:?}", path.display(), places.shape());
        return Err(Error::new(error::SHAPE, message).into());
    };
    let mut memory = match places.len() as u64 == places.span() {
        true => vec![0; array.data.len()],
        false => tensor.read(stream)?,
    };
    places.scatter(dtype.bytes() as usize, &array.data, &mut memory);
    Ok(tensor.write(&memory, stream)?)
}

fn save(tensor: &impl Bytes, dtype: DType, path: &Path, stream: &Stream) -> Result<(), RunError> {
    let places = positions(tensor.layout())?;
    let data = places.gather(dtype.bytes() as usize, &tensor.read(stream)?);
    Ok(Array { dtype, shape: places.shape(), data }.write(path)?)
}

macro_rules! npy {
    ($($tensor:ident),*) => {$(
        impl<T: Element> Npy for $tensor<T> {
            fn load_npy(&self, path: &Path, stream: &Stream) -> Result<(), RunError> {
                load(self, T::DTYPE, path, stream)
            }

            fn save_npy(&self, path: &Path, stream: &Stream) -> Result<(), RunError> {
                save(self, T::DTYPE, path, stream)
            }
        }
    )*};
}

npy!(SymmetricTensor, DeviceTensor);

impl<T: Element> Bytes for SymmetricTensor<T> {
    fn layout(&self) -> &Layout {
        SymmetricTensor::layout(self)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>, Error> {
        self.to_bytes(stream)
    }

    fn write(&self, bytes: &[u8], stream: &Stream) -> Result<(), Error> {
        self.copy_from_bytes(bytes, stream)
    }
}

impl<T: Element> Bytes for DeviceTensor<T> {
    fn layout(&self) -> &Layout {
        DeviceTensor::layout(self)
    }

    fn read(&self, stream: &Stream) -> Result<Vec<u8>, Error> {
        self.to_bytes(stream)
    }

    fn write(&self, bytes: &[u8], stream: &Stream) -> Result<(), Error> {
        self.copy_from_bytes(bytes, stream)
    }
}
