//! DLPack shares tensors with PyTorch, CuPy, JAX and others without copying.
//!
//! Source: DLPack 1.x (dmlc.github.io/dlpack). The callers are responsible for order: a tensor is
//! passed on when the work that fills it is done, or between streams that wait for each other.
#![allow(unsafe_code, reason = "DLPack's descriptors hold raw addresses")]

use super::{AnyTensor, SymmetricTensor};
use crate::cuda::{Device, DeviceTensor};
use crate::error::{self, Error, Result};
use crate::shape::memory_elements;
use crate::simulated::Pe;
use crate::{DType, Element};
use dlpark::ffi::{DLDataType, DLDataTypeCode as Code, DLDevice, DLDeviceType};
use dlpark::metadata::Dynamic;
use dlpark::{AllocationDeleter, Managed, ManagedTensorBase};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use weft_layout::{Int, IntTuple, Layout};

/// DLPack's code for each element type. The number of bits follows from the type's size.
const CODES: &[(DType, Code)] = &[
    (DType::Bool, Code::BOOL),
    (DType::I8, Code::INT),
    (DType::I16, Code::INT),
    (DType::I32, Code::INT),
    (DType::I64, Code::INT),
    (DType::U8, Code::UINT),
    (DType::U16, Code::UINT),
    (DType::U32, Code::UINT),
    (DType::U64, Code::UINT),
    (DType::F16, Code::FLOAT),
    (DType::BF16, Code::BFLOAT),
    (DType::F32, Code::FLOAT),
    (DType::F64, Code::FLOAT),
    (DType::E4M3, Code::FLOAT8_E4M3FN),
    (DType::E5M2, Code::FLOAT8_E5M2),
];

/// DLPack's type for unknown devices. A simulated PE's addresses are valid only in the simulator,
/// so no other library must use them as memory of the host or of a GPU.
const SIMULATED: DLDeviceType = DLDeviceType::EXTDEV;

fn dl_device(device: &Device) -> DLDevice {
    match device.pe() {
        Some(pe) => DLDevice { device_type: SIMULATED, device_id: pe.number() },
        None => DLDevice { device_type: DLDeviceType::CUDA, device_id: device.ordinal() as i32 },
    }
}

fn dl_type(dtype: DType) -> DLDataType {
    let code = CODES.iter().find(|(d, _)| *d == dtype).map_or(Code::OPAQUEHANDLE, |(_, code)| *code);
    DLDataType::new(code, dtype.bits() as u8, 1)
}

/// The element type of a DLPack type, if warpweft has it.
fn dtype_of(dl: DLDataType) -> Option<DType> {
    DType::ALL.iter().copied().find(|d| dl_type(*d) == dl)
}

fn error(message: impl Into<String>) -> Error {
    Error::new(error::DLPACK, message)
}

/// The shape and strides of a layout, with one of each for each mode.
fn flat(layout: &Layout) -> Result<(Vec<i64>, Vec<i64>)> {
    let nested = || {
        error(format!("layout {layout} has a mode with several strides, which DLPack cannot express"))
            .help("export a view with one stride for each mode")
    };
    let int = |t: &IntTuple| t.as_int().and_then(Int::as_const);
    let mut out = (Vec::new(), Vec::new());
    for m in 0..layout.rank() {
        let mode = layout.mode(m).ok_or_else(nested)?.coalesce().map_err(|_| nested())?;
        out.0.push(int(mode.shape()).ok_or_else(nested)?);
        out.1.push(int(mode.stride()).ok_or_else(nested)?);
    }
    Ok(out)
}

/// Describes memory that `owner` keeps alive.
fn export<M: ManagedTensorBase, O: Send>(
    owner: O,
    (address, dtype, layout): (u64, DType, &Layout),
    device: &Device,
) -> Result<Managed<M>> {
    let (shape, strides) = flat(layout)?;
    let prepared = Dynamic::new(&shape[..], &strides[..]).prepare_as::<M>();
    let mut made = prepared.map_err(|e| error(e.to_string()))?.initialize(Box::new(owner));
    made.set_device(dl_device(device));
    made.set_dtype(dl_type(dtype)).set_data(address as usize as *mut _);
    // SAFETY: the owner keeps the memory, which has these extents, until the deleter drops it.
    Ok(unsafe { made.finish() })
}

impl<T: Element> SymmetricTensor<T> {
    /// Exports this PE's copy to another library, which keeps the memory until it drops the tensor.
    /// `M` is `DLManagedTensorVersioned`, or `DLManagedTensor` for libraries that accept only that.
    ///
    /// Other libraries drop tensors at their own time, and not on all PEs at once. So memory that
    /// was exported is freed at the next allocation, [`collect`](crate::World::collect) or end
    /// after its last use on every PE. Export it on every PE or on none.
    /// [`World::finalize`](crate::World::finalize) frees the memory even if another library still
    /// uses it, and reports it as a leak.
    ///
    /// # Errors
    /// Fails for a layout that DLPack cannot express (R0308), or after the world has ended (R0305).
    pub fn to_dlpack<M: ManagedTensorBase>(&self) -> Result<Managed<M>> {
        let world = self.buffer().world().enter()?;
        let made = export(self.clone(), (self.address(), T::DTYPE, self.layout()), &world.device)?;
        self.buffer().0.allocation.export();
        Ok(made)
    }
}

impl AnyTensor {
    /// Exports the tensor like [`SymmetricTensor::to_dlpack`].
    ///
    /// # Errors
    /// Fails where [`SymmetricTensor::to_dlpack`] fails.
    pub fn to_dlpack<M: ManagedTensorBase>(&self) -> Result<Managed<M>> {
        let world = self.buffer().world().enter()?;
        let made = export(self.clone(), (self.address(), self.dtype(), self.layout()), &world.device)?;
        self.buffer().0.allocation.export();
        Ok(made)
    }
}

impl<T: Element> DeviceTensor<T> {
    /// Converts the tensor for another library, which owns it from now on.
    ///
    /// # Errors
    /// Fails for a layout that DLPack cannot express (R0308).
    pub fn into_dlpack<M: ManagedTensorBase>(self) -> Result<Managed<M>> {
        let (address, layout, device) = (self.address(), self.layout().clone(), self.device().clone());
        export(self, (address, T::DTYPE, &layout), &device)
    }
}

/// A tensor of another library in the memory of one GPU: a `global` parameter of kernels, and the
/// local side of puts and gets. Its owner is told when the last clone is dropped, once the device
/// is done with the work on it.
#[derive(Clone)]
pub struct ImportedTensor<T> {
    owner: Arc<Owner>,
    address: u64,
    layout: Layout,
    elements: usize,
    marker: PhantomData<T>,
}

/// The other library's memory, and the device that may be using it.
pub(crate) struct Owner {
    /// The deleter, or `None` once it was called.
    deleter: Option<AllocationDeleter>,
    device: Device,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A kernel that never ends keeps its memory forever.
        if self.device.wait().is_err() {
            std::mem::forget(self.deleter.take());
        }
    }
}

impl<T: Element> ImportedTensor<T> {
    /// Imports a tensor of another library.
    ///
    /// # Errors
    /// Fails if the tensor is not on a GPU, or has another element type, negative strides, or no
    /// elements (R0308). It is then given back to its owner.
    ///
    /// # Safety
    /// The tensor obeys DLPack: its memory stays as described until its deleter is called. The work
    /// that fills it is done, or ordered before the stream that uses it.
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: Managed<M>) -> Result<ImportedTensor<T>> {
        let view = tensor.validate().map_err(|e| error(e.to_string()))?;
        let device_type = view.device().device_type;
        if ![DLDeviceType::CUDA, SIMULATED].contains(&device_type) {
            let kind = view.device().device_type.0;
            return Err(error(format!(
                "the tensor is on a device of DLPack's type {kind}, not on a CUDA GPU (2)"
            )));
        }
        if dtype_of(view.dtype()) != Some(T::DTYPE) {
            let d = view.dtype();
            let have = dtype_of(d).map_or_else(
                || {
                    format!(
                        "DLPack type code {} with {} bits and {} lanes is not supported",
                        d.code.0, d.bits, d.lanes
                    )
                },
                |d| d.to_string(),
            );
            return Err(error(format!("the tensor's elements are {have}, but {} was requested", T::DTYPE)));
        }
        let id = view.device().device_id;
        let device = match device_type {
            SIMULATED => Pe::of_number(id).as_ref().map(Device::simulated).ok_or_else(|| {
                error(format!("the tensor is on simulated device {id}, which does not exist"))
            })?,
            _ => Device::open(u32::try_from(id).unwrap_or(u32::MAX))?,
        };
        let strides = view.strides_or_compact().map_err(|e| error(e.to_string()))?;
        let layout = layout(view.shape(), &strides)?;
        let elements = memory_elements(&layout)?;
        // SAFETY: only the address is computed; the caller vouches for the memory.
        let address = unsafe { view.offset_bytes_ptr() }.map_err(|e| error(e.to_string()))? as u64;
        if elements == 0 || address == 0 {
            return Err(error("the tensor has no elements"));
        }
        let owner = Arc::new(Owner { deleter: Some(tensor.into_deleter()), device });
        Ok(ImportedTensor { owner, address, layout, elements, marker: PhantomData })
    }

    /// The address of the first element on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Shape and strides, in elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The GPU it is on.
    pub fn device(&self) -> &Device {
        &self.owner.device
    }

    /// Returns the number of elements from the first to the last.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Returns false, since a tensor has at least one element.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The object that a graph keeps alive.
    pub(crate) fn owner(&self) -> Arc<Owner> {
        self.owner.clone()
    }
}

/// The layout of a flat shape and strides. A mode with one element gets stride 0.
fn layout(shape: &[i64], strides: &[i64]) -> Result<Layout> {
    if strides.iter().zip(shape).any(|(d, n)| *d < 0 && *n > 1) {
        return Err(error(format!(
            "the strides {strides:?} contain negative values, which are not supported"
        ))
        .help("make a copy with positive strides"));
    }
    let tuple = |numbers: Vec<i64>| -> IntTuple {
        match numbers[..] {
            [] => 1.into(),
            [n] => n.into(),
            _ => numbers.into_iter().map(IntTuple::from).collect::<Vec<_>>().into(),
        }
    };
    let strides = shape.iter().zip(strides).map(|(n, d)| if *n == 1 { 0 } else { *d }).collect();
    Layout::new(tuple(shape.to_vec()), tuple(strides)).map_err(|e| error(e.to_string()))
}

impl<T> fmt::Debug for ImportedTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImportedTensor({} at {:#x})", self.layout, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_code_of_its_own() {
        for d in DType::ALL {
            assert_eq!(dtype_of(dl_type(*d)), Some(*d));
        }
        assert_eq!(dtype_of(DLDataType::new(Code::FLOAT, 32, 4)), None);
    }

    #[test]
    fn layouts_are_shape_and_strides() {
        let l = layout(&[4, 8], &[8, 1]).unwrap();
        assert_eq!((l.to_string().as_str(), flat(&l).unwrap()), ("(4,8):(8,1)", (vec![4, 8], vec![8, 1])));
        assert_eq!(flat(&layout(&[], &[]).unwrap()).unwrap(), (vec![1], vec![0]));
        assert_eq!(flat(&layout(&[1, 5], &[77, 1]).unwrap()).unwrap(), (vec![1, 5], vec![0, 1]));
        assert_eq!(layout(&[4], &[-1]).unwrap_err().code, error::DLPACK);
    }

    #[test]
    fn nested_modes_go_where_they_are_one_stride() {
        let parse = |text| weft_layout::parse_layout(text, &mut |_| None).unwrap();
        assert_eq!(flat(&parse("((2,4),8):((1,2),8)")).unwrap(), (vec![8, 8], vec![1, 8]));
        assert_eq!(flat(&parse("((2,4),8):((1,16),2)")).unwrap_err().code, error::DLPACK);
    }

    #[test]
    fn an_owner_is_kept_until_the_tensor_is_dropped() {
        struct Owner(Arc<()>);
        // A descriptor of memory that is never accessed, without a device.
        let alive = Arc::new(());
        let prepared = Dynamic::new(&[4i64][..], &[1i64][..]).prepare_as::<dlpark::ffi::DLManagedTensor>();
        let made = prepared.unwrap().initialize(Box::new(Owner(alive.clone())));
        // SAFETY: it is dropped without being read.
        let tensor = unsafe { made.finish() };
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(tensor);
        assert_eq!(Arc::strong_count(&alive), 1);
        let _ = Owner(alive).0;
    }

    #[test]
    fn an_owner_is_told_when_the_device_is_done() {
        use crate::World;
        use std::sync::atomic::{AtomicU32, Ordering};
        /// Counts the elements that have arrived when it is dropped.
        struct Owner {
            arrived: Arc<AtomicU32>,
            target: SymmetricTensor<u32>,
            seen: crate::Stream,
            _memory: DeviceTensor<u32>,
        }
        impl Drop for Owner {
            fn drop(&mut self) {
                let now = self.target.to_vec(&self.seen).unwrap();
                let n = now.iter().zip(1..).filter(|(v, i)| **v == *i).count();
                self.arrived.store(n as u32, Ordering::SeqCst);
            }
        }
        let arrived = World::simulated(1).unwrap().run(|world| -> Result<u32> {
            let stream = world.device().new_stream()?;
            let memory = DeviceTensor::from_slice(&(1..=500).collect::<Vec<u32>>(), &stream)?;
            let (target, address) = (world.zeros::<u32>(500)?, memory.address());
            let arrived = Arc::new(AtomicU32::new(0));
            let (seen, layout) = (world.device().new_stream()?, memory.layout().clone());
            let owner = Owner { arrived: arrived.clone(), target: target.clone(), seen, _memory: memory };
            let exported: Managed<dlpark::ffi::DLManagedTensor> =
                export(owner, (address, DType::U32, &layout), world.device())?;
            // SAFETY: the owner keeps the memory.
            let imported = unsafe { ImportedTensor::<u32>::from_dlpack(exported)? };
            world.put(&target, &imported, 0, &stream)?;
            drop(imported);
            Ok(arrived.load(Ordering::SeqCst))
        });
        assert_eq!(arrived.unwrap(), [500]);
    }

    #[test]
    fn tensors_of_the_host_are_given_back() {
        let alive = Arc::new(());
        let prepared =
            Dynamic::new(&[4i64][..], &[1i64][..]).prepare_as::<dlpark::ffi::DLManagedTensorVersioned>();
        let mut made = prepared.unwrap().initialize(Box::new(alive.clone()));
        made.set_device(DLDevice { device_type: DLDeviceType::CPU, device_id: 0 })
            .set_dtype(dl_type(DType::F32));
        // SAFETY: nobody reads its memory.
        let error = unsafe { ImportedTensor::<f32>::from_dlpack(made.finish()) }.unwrap_err();
        assert_eq!(error.code, crate::error::DLPACK);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
