//! The library cuBLASLt, which benchmarks compare with and which is opened at run time. [`sys`] has
//! the raw functions, and `result` a `Result` for every call.
//!
//! warpweft itself does not need it.

mod result;
mod scales;
pub mod sys;

use crate::DType;
use crate::cuda::{AnyDeviceTensor, Device, Keep, Stream, keep};
use crate::error::{CUBLAS, Error, OPERATION, Result, SHAPE};
use crate::find::{self, Found};
use crate::launch::{ArgumentValue, AsArgument, Elements};
use result::{Addresses, Described, Library, Object};
pub use scales::Scales;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use weft_layout::Layout;

/// The workspace for algorithms in bytes, as cuBLAS's documentation recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// A product of matrices, D = A * transpose(B), with A (m, k) and D (m, n), rows contiguous, and B (n, k).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// The number of rows of A and D.
    pub m: u64,
    /// The number of rows of B, and of columns of D.
    pub n: u64,
    /// The number of columns of A and B.
    pub k: u64,
    /// The element type of A and B.
    pub dtype: DType,
    /// The element type of D.
    pub out: DType,
    /// Whether the columns of B are contiguous instead of the rows.
    pub b_columns: bool,
}

/// One of the library's algorithms for a product.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    algo: sys::Algo,
    /// The size of the workspace that it needs in bytes.
    pub workspace: usize,
}

/// The version of a cuBLASLt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub usize);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version(n) = self;
        write!(f, "{}.{}.{}", n / 10_000, n / 100 % 100, n % 100)
    }
}

/// The library of this machine, which is looked for and opened once in a process.
fn library() -> Result<&'static (Found, Library)> {
    static LIBRARY: OnceLock<Result<(Found, Library)>> = OnceLock::new();
    let open = || {
        let found = find::cublas_lt()?;
        Library::open(&found.path).map(|library| (found, library))
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// Returns the version and the path of this machine's cuBLASLt.
///
/// # Errors
/// Fails if the library is not found or is not cuBLASLt (R0112). The message lists every place
/// searched.
pub fn installed() -> Result<(Version, &'static Path)> {
    library().map(|(found, library)| (Version(library.version), &*found.path))
}

/// Checks that cuBLASLt multiplies matrices of a type.
///
/// # Errors
/// Fails if cuBLASLt does not multiply the type (R0401). The message lists the types that it
/// multiplies.
pub fn has(dtype: DType) -> Result<()> {
    types(dtype).map(drop)
}

fn types(dtype: DType) -> Result<(i32, i32)> {
    sys::data_type(dtype).ok_or_else(|| {
        Error::new(OPERATION, format!("cuBLASLt is not measured with matrices of {dtype}"))
            .help("use f32, f16, bf16, e4m3 or e5m2")
    })
}

/// cuBLASLt on one device, for one product.
pub struct Matmul {
    product: Product,
    scales: Scales,
    described: Described<'static>,
    preference: Object<'static>,
    handle: Object<'static>,
    workspace: AnyDeviceTensor,
}

impl Matmul {
    /// Describes a product for a device.
    ///
    /// # Errors
    /// Fails if there is no cuBLASLt (R0112), for a type that it does not multiply (R0401), if a
    /// call fails (R0113), or if the device does not have enough memory for the workspace (R0302).
    pub fn new(device: &Device, product: Product) -> Result<Matmul> {
        Matmul::scaled(device, product, Scales::None)
    }

    /// Describes a product of matrices with scales for a device.
    ///
    /// # Errors
    /// Fails where [`new`](Matmul::new) fails, and if the library is too old for the scales (R0113).
    pub fn scaled(device: &Device, product: Product, scales: Scales) -> Result<Matmul> {
        let (_, library) = library()?;
        scales.known_to(Version(library.version))?;
        let (dtype, compute) = types(product.dtype)?;
        let (out, _) = types(product.out)?;
        // The library uses the device of the primary context.
        device.context()?;
        device.bind()?;
        let handle = library.create()?;
        let operation = library.operation(compute)?;
        // The library's matrices have contiguous columns, so it computes transpose(D) = B *
        // transpose(A). Both operands have contiguous columns in its view if their rows are
        // contiguous here.
        let Product { m, n, k, b_columns, .. } = product;
        operation.set_operation(sys::DESC_TRANSA, if b_columns { sys::OP_N } else { sys::OP_T })?;
        operation.set_operation(sys::DESC_TRANSB, sys::OP_N)?;
        // Scales of blocks are applied to sums outside of the tensor cores. PyTorch rejects both together.
        if product.dtype.bytes() == 1 && scales != Scales::Blocks {
            operation.set_operation(sys::DESC_FAST_ACCUM, 1i8)?;
        }
        for (attribute, mode) in scales.modes() {
            operation.set_operation(attribute, mode)?;
        }
        let (rows, columns) = if b_columns { (n, k) } else { (k, n) };
        let described = Described {
            operation,
            a: library.layout(dtype, rows, columns, rows)?,
            b: library.layout(dtype, k, m, k)?,
            d: library.layout(out, n, m, n)?,
        };
        let preference = library.preference()?;
        preference.set_preference(sys::PREF_MAX_WORKSPACE_BYTES, WORKSPACE as u64)?;
        let workspace = AnyDeviceTensor::alloc(device, DType::U8, flat(WORKSPACE as u64)?)?;
        let matmul = Matmul { product, scales, described, preference, handle, workspace };
        if scales != Scales::None {
            // The heuristic asks only whether there are scales. Launches set the addresses that are read.
            matmul.set_scales([matmul.workspace.address(); 2])?;
        }
        Ok(matmul)
    }

    /// Returns at most `max` algorithms, with the fastest according to the library's heuristic
    /// first.
    ///
    /// # Errors
    /// Fails if a cuBLASLt call fails, or if the library has no algorithm for the product (R0113).
    pub fn algorithms(&self, max: usize) -> Result<Vec<Algorithm>> {
        let (_, library) = library()?;
        let found = library.algorithms(&self.handle, &self.described, &self.preference, max)?;
        if found.is_empty() {
            let Product { m, n, k, dtype, out, .. } = self.product;
            let scales = self.scales;
            let message =
                format!("cuBLASLt has no algorithm for {m}x{n}x{k} of {dtype} with results of {out}{scales}");
            return Err(Error::new(CUBLAS, message));
        }
        Ok(found.iter().map(|f| Algorithm { algo: f.algo, workspace: f.workspace }).collect())
    }

    /// Enqueues the product on a stream of the device.
    ///
    /// # Errors
    /// Fails for operands of other types or sizes, on another device, or that have scales (R0307), or
    /// if a cuBLASLt call fails (R0113).
    pub fn launch(
        &self,
        algorithm: &Algorithm,
        operands: (&dyn AsArgument, &dyn AsArgument, &dyn AsArgument),
        stream: &Stream,
    ) -> Result<()> {
        match self.scales {
            Scales::None => self.enqueue(algorithm, operands, stream),
            scales => Err(Error::new(SHAPE, format!("the product is one{scales}, and the launch has none"))
                .help("use `launch_scaled`")),
        }
    }

    /// Enqueues a product with scales of A and B, which are f32 and laid out as [`Scales`] says.
    ///
    /// # Errors
    /// Fails where [`launch`](Matmul::launch) fails, and for other numbers of scales than
    /// [`Scales::counts`] (R0307).
    pub fn launch_scaled(
        &self,
        algorithm: &Algorithm,
        operands: (&dyn AsArgument, &dyn AsArgument, &dyn AsArgument),
        (scale_a, scale_b): (&dyn AsArgument, &dyn AsArgument),
        stream: &Stream,
    ) -> Result<()> {
        let [of_a, of_b] = self.scales.counts(&self.product);
        let a = self.operand(("the scale of A", scale_a), (DType::F32, of_a), stream)?;
        let b = self.operand(("the scale of B", scale_b), (DType::F32, of_b), stream)?;
        self.set_scales([a.0, b.0])?;
        self.enqueue(algorithm, operands, stream)?;
        [a.1, b.1].into_iter().flatten().for_each(keep);
        Ok(())
    }

    /// Sets the addresses of the scales of A and B. The library's first operand is B here.
    fn set_scales(&self, [a, b]: [u64; 2]) -> Result<()> {
        let operation = &self.described.operation;
        operation.set_operation(sys::DESC_A_SCALE_POINTER, b)?;
        operation.set_operation(sys::DESC_B_SCALE_POINTER, a)
    }

    #[allow(unsafe_code, reason = "a call of a C library with addresses of device memory")]
    fn enqueue(
        &self,
        algorithm: &Algorithm,
        (a, b, d): (&dyn AsArgument, &dyn AsArgument, &dyn AsArgument),
        stream: &Stream,
    ) -> Result<()> {
        let Product { m, n, k, dtype, out, .. } = self.product;
        let a = self.operand(("A", a), (dtype, m * k), stream)?;
        let b = self.operand(("B", b), (dtype, n * k), stream)?;
        let d = self.operand(("D", d), (out, m * n), stream)?;
        let (_, library) = library()?;
        let on = stream.gpu()?.cu_stream().cast();
        let workspace = (self.workspace.address(), WORKSPACE);
        let at = Addresses { a: b.0, b: a.0, d: d.0, workspace };
        // SAFETY: the sizes were compared above, and those of scales in `launch_scaled`; each
        // tensor's drop waits for the device, and a graph that is being captured keeps their memory.
        unsafe { library.matmul(&self.handle, &self.described, &algorithm.algo, at, on)? };
        [a.1, b.1, d.1].into_iter().flatten().for_each(keep);
        keep(self.workspace.memory().clone());
        Ok(())
    }

    /// The address of a contiguous matrix of this number of elements, and the object that keeps it.
    fn operand(
        &self,
        (name, matrix): (&str, &dyn AsArgument),
        (dtype, elements): (DType, u64),
        stream: &Stream,
    ) -> Result<(u64, Option<Keep>)> {
        let argument = matrix.argument(stream).flat();
        let given = argument.given();
        let own = argument.gpu().is_none_or(|gpu| gpu == self.device().ordinal());
        match given {
            ArgumentValue::Tensor { address, dtype: has, extent: Elements::Flat(n), .. }
                if own && has == dtype && n as u64 == elements =>
            {
                Ok((address, argument.held()))
            }
            _ => {
                let message =
                    format!("{name} has {given}, but the product needs {elements} elements of {dtype}");
                Err(Error::new(SHAPE, message))
            }
        }
    }

    fn device(&self) -> &Device {
        self.workspace.device()
    }
}

/// A layout of contiguous elements.
fn flat(elements: u64) -> Result<Layout> {
    use crate::IntoLayout;
    usize::try_from(elements).unwrap_or(usize::MAX).into_layout()
}
