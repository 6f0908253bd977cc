//! cuBLASLt, to measure beside: it is opened at run time. [`sys`] has the functions as they are, `result` a `Result` for
//! every call.
//!
//! Nothing of warpweft's own needs it.

mod result;
pub mod sys;

use crate::DType;
use crate::cuda::{AnyDeviceTensor, Device, Keep, Stream, keep};
use crate::error::{CUBLAS, Error, OPERATION, Result, SHAPE};
use crate::find::{self, Found};
use crate::launch::{ArgumentValue, AsArgument, Elements};
use result::{Addresses, Described, Library, Object};
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use weft_layout::Layout;

/// Bytes of workspace that algorithms may use: what cuBLAS's documentation recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// A product of matrices, D = A * transpose(B), with A (m, k) and D (m, n), rows contiguous, and B (n, k).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product {
    /// Rows of A and D.
    pub m: u64,
    /// Rows of B, columns of D.
    pub n: u64,
    /// Columns of A and B.
    pub k: u64,
    /// Element type of A and B.
    pub dtype: DType,
    /// Element type of D.
    pub out: DType,
    /// Whether columns of B are contiguous, not rows.
    pub b_columns: bool,
}

/// One of the library's algorithms for a product.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    algo: sys::Algo,
    /// Bytes of workspace that it needs.
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

/// The library of this machine; looked for and opened once a process.
fn library() -> Result<&'static (Found, Library)> {
    static LIBRARY: OnceLock<Result<(Found, Library)>> = OnceLock::new();
    let open = || {
        let found = find::cublas_lt()?;
        Library::open(&found.path).map(|library| (found, library))
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// The cuBLASLt of this machine: its version, and where it is.
///
/// # Errors
/// Fails if the library is not found or is not cuBLASLt (R0112). The message lists every place searched.
pub fn installed() -> Result<(Version, &'static Path)> {
    library().map(|(found, library)| (Version(library.version), &*found.path))
}

/// Whether cuBLASLt has products of that type.
///
/// # Errors
/// Fails if cuBLASLt does not multiply the type (R0401). The message lists the types that it multiplies.
pub fn has(dtype: DType) -> Result<()> {
    types(dtype).map(drop)
}

fn types(dtype: DType) -> Result<(i32, i32)> {
    sys::data_type(dtype).ok_or_else(|| {
        Error::new(OPERATION, format!("products of {dtype} are not measured with cuBLASLt"))
            .help("use f32, f16, bf16, e4m3 or e5m2")
    })
}

/// cuBLASLt on one device, for one product.
pub struct Matmul {
    product: Product,
    described: Described<'static>,
    preference: Object<'static>,
    handle: Object<'static>,
    workspace: AnyDeviceTensor,
}

impl Matmul {
    /// Describes a product for a device.
    ///
    /// # Errors
    /// Fails if there is no cuBLASLt (R0112), for a type that it does not multiply (R0401), if a call fails
    /// (R0113), or if the device has no room for the workspace (R0302).
    pub fn new(device: &Device, product: Product) -> Result<Matmul> {
        let (_, library) = library()?;
        let (dtype, compute) = types(product.dtype)?;
        let (out, _) = types(product.out)?;
        // The library takes the primary context's device where it begins.
        device.context()?;
        device.bind()?;
        let handle = library.create()?;
        let operation = library.operation(compute)?;
        // The library has columns contiguous, and so computes transpose(D) = B * transpose(A), of which both operands are
        // its own columns where rows are contiguous here.
        let Product { m, n, k, b_columns, .. } = product;
        operation.set_operation(sys::DESC_TRANSA, if b_columns { sys::OP_N } else { sys::OP_T })?;
        operation.set_operation(sys::DESC_TRANSB, sys::OP_N)?;
        if product.dtype.bytes() == 1 {
            operation.set_operation(sys::DESC_FAST_ACCUM, 1i8)?;
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
        Ok(Matmul { product, described, preference, handle, workspace })
    }

    /// At most `most` algorithms, the one that the library's heuristic expects to be the fastest first.
    ///
    /// # Errors
    /// Fails if a cuBLASLt call fails, or if the library has no algorithm for the product (R0113).
    pub fn algorithms(&self, most: usize) -> Result<Vec<Algorithm>> {
        let (_, library) = library()?;
        let found = library.algorithms(&self.handle, &self.described, &self.preference, most)?;
        if found.is_empty() {
            let Product { m, n, k, dtype, out, .. } = self.product;
            let message =
                format!("cuBLASLt has no algorithm for {m}x{n}x{k} of {dtype} with results of {out}");
            return Err(Error::new(CUBLAS, message));
        }
        Ok(found.iter().map(|f| Algorithm { algo: f.algo, workspace: f.workspace }).collect())
    }

    /// Puts the product on a stream of the device.
    ///
    /// # Errors
    /// Fails for operands of other types or sizes, or on another device (R0307), or if a cuBLASLt call fails
    /// (R0113).
    #[allow(unsafe_code, reason = "a call of a C library with addresses of device memory")]
    pub fn launch(
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
        // SAFETY: the sizes were compared above; each tensor's drop waits for the device, and a graph that is being
        // captured holds on to their memory.
        unsafe { library.matmul(&self.handle, &self.described, &algorithm.algo, at, on)? };
        [a.1, b.1, d.1].into_iter().flatten().for_each(keep);
        keep(self.workspace.memory().clone());
        Ok(())
    }

    /// The address of a matrix of so many elements, one after the other, and what keeps it.
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
                    format!("{name} is {given}, and the product has {elements} elements of {dtype}");
                Err(Error::new(SHAPE, message))
            }
        }
    }

    fn device(&self) -> &Device {
        self.workspace.device()
    }
}

/// Elements one after the other.
fn flat(elements: u64) -> Result<Layout> {
    use crate::IntoLayout;
    usize::try_from(elements).unwrap_or(usize::MAX).into_layout()
}
