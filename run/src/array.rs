//! Arrays of numbers: element bytes with a shape, and NumPy's file format.

use super::npy::Header;
use std::fmt;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weft_ir::Scalar;

/// The reason why a file is not an array, or not the expected one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {message}")]
#[non_exhaustive]
pub struct ArrayError {
    /// The name of the file.
    pub file: String,
    /// A text that says what is wrong and what was expected.
    pub message: String,
}

/// Numbers in C order (last index fastest), little-endian.
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    /// The type of the elements.
    pub dtype: Scalar,
    /// The extents, with the slowest dimension first.
    pub shape: Vec<u64>,
    /// The bytes of the elements.
    pub data: Vec<u8>,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// The element types and their names in NumPy. Types that NumPy lacks are stored as unsigned
/// integers of the same width.
const NAMES: [(Scalar, &str); 15] = [
    (Scalar::Bool, "|b1"),
    (Scalar::I8, "|i1"),
    (Scalar::I16, "<i2"),
    (Scalar::I32, "<i4"),
    (Scalar::I64, "<i8"),
    (Scalar::U8, "|u1"),
    (Scalar::U16, "<u2"),
    (Scalar::U32, "<u4"),
    (Scalar::U64, "<u8"),
    (Scalar::F16, "<f2"),
    (Scalar::F32, "<f4"),
    (Scalar::F64, "<f8"),
    (Scalar::BF16, "<u2"),
    (Scalar::E4M3, "|u1"),
    (Scalar::E5M2, "|u1"),
];

impl Array {
    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Reads a `.npy` file. The header is compared with the file's size before anything is
    /// allocated.
    pub fn read(path: &Path) -> Result<Array, ArrayError> {
        let file = path.display().to_string();
        let bytes =
            Array::read_claimed(path).map_err(|message| ArrayError { file: file.clone(), message })?;
        Array::from_npy(&bytes).map_err(|message| ArrayError { file, message })
    }

    /// The bytes of a regular file. From a large file, at most one byte more than its header claims
    /// is read, which is enough to show that the claim is wrong.
    fn read_claimed(path: &Path) -> Result<Vec<u8>, String> {
        const HEAD: u64 = 1 << 17;
        let bad = |e: std::io::Error| format!("cannot be read: {e}");
        let mut file = weft_runtime::owned::open_regular(path).map_err(bad)?;
        let mut bytes = Vec::new();
        if (Read::by_ref(&mut file).take(HEAD).read_to_end(&mut bytes).map_err(bad)? as u64) < HEAD {
            return Ok(bytes);
        }
        let (header, rest) = Header::read(&bytes)?;
        // An element has at most 8 bytes.
        let claimed = header.shape.iter().fold(8u64, |n, extent| n.saturating_mul(*extent));
        let left = claimed.saturating_sub(rest.len() as u64).saturating_add(1);
        file.take(left).read_to_end(&mut bytes).map_err(bad)?;
        Ok(bytes)
    }

    /// Parses the bytes of a `.npy` file.
    pub fn from_npy(bytes: &[u8]) -> Result<Array, String> {
        let (header, rest) = Header::read(bytes)?;
        let swap = header.descr.starts_with('>');
        let ty = header.descr.strip_prefix(['<', '>', '=', '|']).unwrap_or(&header.descr);
        let Some((dtype, _)) = NAMES.iter().copied().find(|(_, name)| name[1..] == *ty) else {
            let descr: String = header.descr.chars().take(40).collect();
            return Err(format!(
                "has dtype {descr}; expected float16, float32, float64, int8 to int64, uint8 to uint64, or bool"
            ));
        };
        let shape = header.shape;
        let want = shape.iter().try_fold(u64::from(dtype.bytes()), |n, d| n.checked_mul(*d));
        let Some(want) = want else {
            return Err(format!("claims an impossible shape {shape:?}"));
        };
        if (rest.len() as u64) < want {
            return Err(format!(
                "is truncated: shape {shape:?} of {dtype} needs {want} bytes, but the file has {}",
                rest.len()
            ));
        }
        if rest.len() as u64 > want {
            return Err(format!("has {} bytes after the array of shape {shape:?}", rest.len() as u64 - want));
        }
        let size = dtype.bytes() as usize;
        let mut data = rest.to_vec();
        if swap {
            data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        if header.fortran_order && shape.len() > 1 {
            data = c_order(&data, &shape, size);
        }
        Ok(Array { dtype, shape, data })
    }

    /// Reinterprets the bits as another element type of the same width: bf16 in `uint16`, fp8 in
    /// `uint8`.
    pub fn reinterpret(mut self, dtype: Scalar) -> Result<Array, String> {
        let stored = |s: Scalar| NAMES.iter().find(|(d, _)| *d == s).map(|(_, n)| *n);
        if self.dtype == dtype || stored(self.dtype) == stored(dtype) {
            self.dtype = dtype;
            return Ok(self);
        }
        let numpy = stored(dtype).unwrap_or_default();
        Err(format!("has dtype {}, but {dtype} is needed (NumPy's {numpy})", self.dtype))
    }

    /// Writes a `.npy` file. A regular file is written atomically; a device or pipe is written
    /// directly.
    pub fn write(&self, path: &Path) -> Result<(), ArrayError> {
        let bad = |e: std::io::Error| ArrayError {
            file: path.display().to_string(),
            message: format!("cannot be written: {e}"),
        };
        let mut bytes = self.header();
        bytes.extend_from_slice(&self.data);
        // The target of a link is replaced, not the link.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if std::fs::metadata(&target).is_ok_and(|m| !m.is_file()) {
            return std::fs::write(&target, bytes).map_err(bad);
        }
        let directory = target.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The mode is that of a new file with the user's mask, or that of the existing file.
        let mode = std::fs::metadata(&target).map_or(0o666, |m| m.permissions().mode());
        let mut new = tempfile::Builder::new();
        new.prefix(".weft").permissions(Permissions::from_mode(mode));
        let mut part = new.tempfile_in(directory).map_err(bad)?;
        part.write_all(&bytes).map_err(bad)?;
        part.persist(&target).map_err(|e| bad(e.error))?;
        Ok(())
    }

    /// The header of the array's file.
    fn header(&self) -> Vec<u8> {
        let descr = NAMES.iter().find(|(s, _)| *s == self.dtype).map_or("|u1", |(_, n)| n);
        Header { descr: descr.into(), fortran_order: false, shape: self.shape.clone() }.bytes()
    }

    /// Returns element `i` in C order, exactly.
    pub fn get(&self, i: usize) -> Number {
        let size = self.dtype.bytes() as usize;
        read_number(self.dtype, self.data.get(i * size..(i + 1) * size).unwrap_or_default())
    }
}

/// Converts elements from Fortran order to C order.
fn c_order(data: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0u64; shape.len()];
    for _ in 0..data.len() / size {
        let at = index.iter().zip(shape).rev().fold(0, |n, (i, d)| n * d + i) as usize;
        out.extend_from_slice(&data[at * size..(at + 1) * size]);
        for (i, d) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *d {
                break;
            }
            *i = 0;
        }
    }
    out
}

/// A number of any element type, exactly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer, or a truth value as 0 or 1.
    Int(i128),
    /// A floating-point number of any type.
    Float(f64),
}

impl Number {
    /// Converts the number to a float, rounded at most once.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(n) => n as f64,
            Number::Float(x) => x,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(n) => write!(f, "{n}"),
            Number::Float(x) => write!(f, "{x}"),
        }
    }
}

/// Returns the number in these bytes, or 0 if there are too few.
pub fn read_number(dtype: Scalar, bytes: &[u8]) -> Number {
    let mut eight = [0u8; 8];
    let n = bytes.len().min(8);
    eight[..n].copy_from_slice(&bytes[..n]);
    let bits = u64::from_le_bytes(eight);
    let shift = 64 - dtype.bits();
    match dtype {
        Scalar::F16 => Number::Float(half::f16::from_bits(bits as u16).to_f64()),
        Scalar::BF16 => Number::Float(half::bf16::from_bits(bits as u16).to_f64()),
        Scalar::F32 => Number::Float(f64::from(f32::from_bits(bits as u32))),
        Scalar::F64 => Number::Float(f64::from_bits(bits)),
        Scalar::E4M3 => Number::Float(float8::F8E4M3::from_bits(bits as u8).to_f64()),
        Scalar::E5M2 => Number::Float(float8::F8E5M2::from_bits(bits as u8).to_f64()),
        Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 => {
            Number::Int(i128::from((bits << shift) as i64 >> shift))
        }
        Scalar::Bool | Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Number::Int(i128::from(bits)),
    }
}

/// Writes the bytes of a number in an element type. Floats are rounded to nearest even, and
/// integers wrap.
pub fn write_number(dtype: Scalar, x: Number, out: &mut Vec<u8>) {
    let int = match x {
        Number::Int(n) => n,
        Number::Float(x) => x as i128,
    };
    match dtype {
        Scalar::F16 => out.extend_from_slice(&half::f16::from_f32(odd(x.as_f64())).to_le_bytes()),
        Scalar::BF16 => out.extend_from_slice(&half::bf16::from_f32(odd(x.as_f64())).to_le_bytes()),
        Scalar::F32 => out.extend_from_slice(&(x.as_f64() as f32).to_le_bytes()),
        Scalar::F64 => out.extend_from_slice(&x.as_f64().to_le_bytes()),
        Scalar::E4M3 => out.push(float8::F8E4M3::from_f64(x.as_f64()).to_bits()),
        Scalar::E5M2 => out.push(float8::F8E5M2::from_f64(x.as_f64()).to_bits()),
        Scalar::Bool => out.push(u8::from(int != 0)),
        _ => out.extend_from_slice(&int.to_le_bytes()[..dtype.bytes() as usize]),
    }
}

/// Converts a number to f32, rounded to odd if it is not exact. A later rounding to fewer bits then
/// gives the same result as a single rounding (Boldo and Melquiond, 2008). `half` drops the last 32
/// bits of an f64 instead, and so rounds down some values just above the middle of two numbers.
fn odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() || x.is_infinite() {
        return near;
    }
    let inward = if back.abs() > x.abs() { near.to_bits() - 1 } else { near.to_bits() };
    f32::from_bits(inward | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(dtype: Scalar, xs: &[f64], shape: &[u64]) -> Array {
        let mut data = Vec::new();
        xs.iter().for_each(|x| write_number(dtype, Number::Float(*x), &mut data));
        Array { dtype, shape: shape.to_vec(), data }
    }

    #[test]
    fn files_read_back() {
        let dir = tempfile::tempdir().unwrap();
        for dtype in [Scalar::F16, Scalar::F32, Scalar::F64, Scalar::I8, Scalar::I64, Scalar::U16] {
            let a = numbers(dtype, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
            let path = dir.path().join("a.npy");
            a.write(&path).unwrap();
            assert_eq!(Array::read(&path).unwrap(), a);
        }
        let b = numbers(Scalar::BF16, &[1.5, -2.0], &[2]);
        let path = dir.path().join("b.npy");
        b.write(&path).unwrap();
        assert_eq!(Array::read(&path).unwrap().reinterpret(Scalar::BF16).unwrap(), b);
    }

    #[test]
    fn fortran_order_and_big_endian() {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let text = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }";
        let text = format!("{text:<117}\n");
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        for n in [1i16, 4, 2, 5, 3, 6] {
            bytes.extend_from_slice(&n.to_be_bytes());
        }
        let a = Array::from_npy(&bytes).unwrap();
        let got: Vec<_> = (0..6).map(|i| a.get(i)).collect();
        assert_eq!(got, [1, 2, 3, 4, 5, 6].map(Number::Int));
    }

    #[test]
    fn what_is_no_array_is_refused() {
        let good = {
            let a = numbers(Scalar::F32, &[1.0, 2.0], &[2]);
            let mut bytes = a.header();
            bytes.extend_from_slice(&a.data);
            bytes
        };
        assert!(Array::from_npy(&good).is_ok());
        for cut in 0..good.len() {
            assert!(Array::from_npy(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut long = good.clone();
        long.push(0);
        assert!(Array::from_npy(&long).unwrap_err().contains("after the array"));
        let mut huge = good.clone();
        huge[6] = 2;
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Array::from_npy(&huge).unwrap_err().contains("truncated"));
        assert!(Array::from_npy(b"PK\x03\x04").unwrap_err().contains("numpy.save"));
    }

    /// Numbers just above, just below and at the middle of two numbers of the narrow type are
    /// rounded once.
    #[test]
    fn numbers_are_rounded_once() {
        let written = |scalar, x: f64| {
            let mut bytes = Vec::new();
            write_number(scalar, Number::Float(x), &mut bytes);
            read_number(scalar, &bytes).as_f64()
        };
        for (scalar, unit) in [(Scalar::BF16, 2f64.powi(-7)), (Scalar::F16, 2f64.powi(-10))] {
            let least = 2f64.powi(-40);
            for sign in [1.0, -1.0] {
                assert_eq!(written(scalar, sign * (1.0 + unit / 2.0 + least)), sign * (1.0 + unit));
                assert_eq!(written(scalar, sign * (1.0 + unit / 2.0)), sign);
                assert_eq!(written(scalar, sign * (1.0 + unit * 1.5 - least)), sign * (1.0 + unit));
            }
            assert!(written(scalar, 1e300).is_infinite() && written(scalar, f64::NAN).is_nan());
        }
    }
}
