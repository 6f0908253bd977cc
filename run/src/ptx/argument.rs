//! The arguments of a kernel on the command line.

use crate::array::{Number, read_number, write_number};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use weft_ir::Scalar;
use weft_sim::Swizzle;

/// The contents of memory before the launch.
#[derive(Clone, PartialEq, Debug)]
pub enum Fill {
    /// The numbers of a `.npy` file, or of one file for each PE if the name has `{pe}`.
    File(PathBuf),
    /// Zeros of the given type and extents.
    Zeros(Scalar, Vec<u64>),
    /// Uninitialised memory of the given type and extents.
    Empty(Scalar, Vec<u64>),
}

/// The box of a tensor map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tile {
    /// The number of elements in each dimension, outermost first, as in the memory's shape.
    pub extents: Vec<u32>,
    /// The swizzle in shared memory.
    pub swizzle: Swizzle,
}

/// The sizes of swizzles in bytes on the command line.
const SWIZZLES: [(&str, Swizzle); 4] =
    [("0", Swizzle::None), ("32", Swizzle::B32), ("64", Swizzle::B64), ("128", Swizzle::B128)];

/// An argument of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// The address of the argument's own memory on each PE.
    Memory {
        /// The initial contents of the memory.
        fill: Fill,
        /// The file for its contents after the launch.
        output: Option<PathBuf>,
        /// Whether it is on the symmetric heap.
        symmetric: bool,
        /// The box, if the argument is a tensor map of the memory instead of its address.
        tile: Option<Tile>,
    },
    /// A number of this type, as its bytes.
    Scalar(Scalar, Vec<u8>),
    /// The bytes of a structure.
    Bytes(Vec<u8>),
    /// The address of a table of the addresses at which the PE reaches every PE's part of a
    /// symmetric argument.
    Peers(usize),
    /// The multicast address of a symmetric argument.
    Multicast(usize),
    /// The address of another PE's part of a symmetric argument: the next PE's for 1.
    Peer(usize, usize),
    /// The PE's number, in 4 bytes.
    Pe,
    /// The number of PEs, in 4 bytes.
    NPes,
}

/// The forms of arguments, for help and errors.
pub const FORMS: &str = "npy:x.npy, npy:x.npy=out.npy, zeros:f32[4,1000]=out.npy, empty:BYTES, sym:npy:x.npy, sym:zeros:4096, \
                         map:128x64/128:npy:x.npy, i32:1024, f32:1.5, u64:0, bytes:00ff..., peers:N, mc:N, peer:N+1, pe, npes";

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Argument, String> {
        parse(text).map_err(|why| format!("argument `{text}`: {why}"))
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, dtype, shape) = match self {
            Fill::File(path) => return write!(f, "npy:{}", path.display()),
            Fill::Zeros(dtype, shape) => ("zeros", dtype, shape),
            Fill::Empty(dtype, shape) => ("empty", dtype, shape),
        };
        let shape: Vec<_> = shape.iter().map(u64::to_string).collect();
        write!(f, "{word}:{dtype}[{}]", shape.join(","))
    }
}

impl fmt::Display for Argument {
    /// Formats the argument so that it can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Memory { fill, output, symmetric, tile } => {
                if let Some(t) = tile {
                    let extents: Vec<_> = t.extents.iter().map(u32::to_string).collect();
                    let bytes = SWIZZLES.iter().find(|(_, s)| *s == t.swizzle).map_or("0", |(name, _)| name);
                    write!(f, "map:{}/{bytes}:", extents.join("x"))?;
                }
                write!(f, "{}{fill}", if *symmetric { "sym:" } else { "" })?;
                output.as_ref().map_or(Ok(()), |path| write!(f, "={}", path.display()))
            }
            Argument::Scalar(dtype, bytes) => write!(f, "{dtype}:{}", read_number(*dtype, bytes)),
            Argument::Bytes(bytes) => {
                f.write_str("bytes:")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
            Argument::Peers(n) => write!(f, "peers:{n}"),
            Argument::Multicast(n) => write!(f, "mc:{n}"),
            Argument::Peer(n, distance) => write!(f, "peer:{n}+{distance}"),
            Argument::Pe => f.write_str("pe"),
            Argument::NPes => f.write_str("npes"),
        }
    }
}

fn parse(text: &str) -> Result<Argument, String> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let index = |text: &str| {
        text.parse().map_err(|_| "expected the number of an argument, counted from 0".to_owned())
    };
    Ok(match word {
        "pe" if rest.is_empty() => Argument::Pe,
        "npes" if rest.is_empty() => Argument::NPes,
        "peers" => Argument::Peers(index(rest)?),
        "mc" => Argument::Multicast(index(rest)?),
        "peer" => {
            let (argument, distance) = rest.split_once('+').unwrap_or((rest, "1"));
            Argument::Peer(index(argument)?, index(distance)?)
        }
        "sym" => match parse(rest)? {
            Argument::Memory { fill, output, tile: None, .. } => {
                Argument::Memory { fill, output, symmetric: true, tile: None }
            }
            _ => {
                return Err("expected memory after `sym:`, as in sym:npy:x.npy or sym:zeros:f32[1000]".into());
            }
        },
        "map" => map(rest)?,
        "npy" | "zeros" | "empty" => memory(word, rest)?,
        "bytes" => Argument::Bytes(hex(rest)?),
        _ => match scalar(word) {
            Some(dtype) => Argument::Scalar(dtype, number(dtype, rest)?),
            None => return Err(format!("expected one of {FORMS}")),
        },
    })
}

/// Parses a type by its name in PTX or in the language.
fn scalar(word: &str) -> Option<Scalar> {
    let signed = word.strip_prefix('s').filter(|bits| bits.parse::<u32>().is_ok());
    signed.map_or_else(|| Scalar::parse(word), |bits| Scalar::parse(&format!("i{bits}")))
}

fn memory(word: &str, rest: &str) -> Result<Argument, String> {
    let (what, output) = match rest.split_once('=') {
        Some((_, "")) => return Err("expected a file after `=`".into()),
        Some((what, file)) => (what, Some(PathBuf::from(file))),
        None => (rest, None),
    };
    let fill = match word {
        "npy" if what.is_empty() => return Err("expected a file: npy:x.npy".into()),
        "npy" => Fill::File(what.into()),
        "zeros" => extents(what).map(|(dtype, shape)| Fill::Zeros(dtype, shape))?,
        _ => extents(what).map(|(dtype, shape)| Fill::Empty(dtype, shape))?,
    };
    Ok(Argument::Memory { fill, output, symmetric: false, tile: None })
}

/// Parses `128x64/128:npy:x.npy`: a tensor map of the memory, with its box and the bytes of its
/// swizzle.
fn map(text: &str) -> Result<Argument, String> {
    let bad = || "expected a box, an optional swizzle, and memory: map:128x64/128:npy:x.npy".to_owned();
    let (tile, of) = text.split_once(':').ok_or_else(bad)?;
    let (extents, bytes) = tile.split_once('/').unwrap_or((tile, "0"));
    let extents: Result<Vec<u32>, _> = extents.split('x').map(str::parse).collect();
    let swizzle = SWIZZLES.iter().find(|(name, _)| *name == bytes).map(|(_, s)| *s);
    let tile = Tile { extents: extents.map_err(|_| bad())?, swizzle: swizzle.ok_or_else(bad)? };
    match parse(of)? {
        Argument::Memory { fill, output, symmetric, tile: None } => {
            Ok(Argument::Memory { fill, output, symmetric, tile: Some(tile) })
        }
        _ => Err(bad()),
    }
}

/// Parses `4096` bytes, or `f32[4,1000]`.
fn extents(text: &str) -> Result<(Scalar, Vec<u64>), String> {
    let bad = || "expected a number of bytes, or a type and extents: 4096, f32[4,1000]".to_owned();
    let numbers = |text: &str| {
        let all = text.split(',').map(|n| n.trim().parse::<u64>());
        all.collect::<Result<Vec<_>, _>>().map_err(|_| bad())
    };
    let (dtype, shape) = match text.strip_suffix(']').and_then(|t| t.split_once('[')) {
        Some((dtype, shape)) => (scalar(dtype).ok_or_else(bad)?, numbers(shape)?),
        None => (Scalar::U8, numbers(text).ok().filter(|n| n.len() == 1).ok_or_else(bad)?),
    };
    let bytes = shape.iter().try_fold(u64::from(dtype.bytes()), |n, d| n.checked_mul(*d));
    match bytes {
        Some(1..=MAX_BYTES) => Ok((dtype, shape)),
        _ => Err(format!("memory must have 1 to {MAX_BYTES} bytes")),
    }
}

/// The largest size of an argument's memory on a PE in bytes.
const MAX_BYTES: u64 = 4 << 30;

/// The bytes of a number. A number that does not fit its type is an error.
fn number(dtype: Scalar, text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if dtype.is_float() {
        let x = text.parse().map_err(|_| format!("expected a number for {dtype}"))?;
        write_number(dtype, Number::Float(x), &mut bytes);
        return Ok(bytes);
    }
    let plain = text.replace('_', "");
    let (sign, digits) = plain.strip_prefix('-').map_or((1, &*plain), |digits| (-1, digits));
    let (hex, digits) = digits.strip_prefix("0x").map_or((false, digits), |digits| (true, digits));
    let value = i128::from_str_radix(digits, if hex { 16 } else { 10 });
    let value = match (value, &*plain) {
        (_, "true") => 1,
        (_, "false") => 0,
        (Ok(n), _) if !digits.starts_with(['+', '-']) => sign * n,
        _ => return Err(format!("expected a whole number for {dtype}")),
    };
    write_number(dtype, Number::Int(value), &mut bytes);
    // The bits of a signed type can be given as an unsigned hexadecimal number.
    let bits = hex && value >= 0 && value >> dtype.bits() == 0;
    if !bits && read_number(dtype, &bytes) != Number::Int(value) {
        return Err(format!("{text} does not fit into {dtype}"));
    }
    Ok(bytes)
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    match digits {
        Some(d) if !d.is_empty() && d.len().is_multiple_of(2) => {
            Ok(d.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
        }
        _ => Err("expected two hexadecimal digits for each byte".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads() {
        let scalar = |text: &str| match text.parse() {
            Ok(Argument::Scalar(dtype, bytes)) => {
                let again = Argument::Scalar(dtype, bytes.clone()).to_string();
                assert_eq!(again.parse(), Ok(Argument::Scalar(dtype, bytes.clone())), "{again}");
                bytes
            }
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(scalar("i32:-1"), [0xff; 4]);
        assert_eq!(scalar("s32:0xffff_ffff"), [0xff; 4]);
        assert_eq!(scalar("f32:1.5"), 1.5f32.to_le_bytes());
        assert_eq!(scalar("bf16:1"), [0x80, 0x3f]);
        assert_eq!(scalar("f16:inf"), [0, 0x7c]);
        assert_eq!(scalar("u64:18446744073709551615"), [0xff; 8]);
        assert_eq!(scalar("bool:true"), [1]);
        assert_eq!("bytes:00Ff".parse(), Ok(Argument::Bytes(vec![0, 255])));
        assert_eq!("peer:3+2".parse(), Ok(Argument::Peer(3, 2)));
        let memory = |fill, output: Option<&str>, symmetric| {
            let made = Argument::Memory { fill, output: output.map(PathBuf::from), symmetric, tile: None };
            assert_eq!(made.to_string().parse().as_ref(), Ok(&made));
            Ok(made)
        };
        assert_eq!("npy:x.npy=y.npy".parse(), memory(Fill::File("x.npy".into()), Some("y.npy"), false));
        assert_eq!("sym:zeros:64".parse(), memory(Fill::Zeros(Scalar::U8, vec![64]), None, true));
        let shape = Fill::Empty(Scalar::F32, vec![4, 1000]);
        assert_eq!("empty:f32[4, 1000]".parse(), memory(shape, None, false));
    }

    #[test]
    fn tensor_maps_read() {
        let made: Argument = "map:128x64/128:npy:x.npy=y.npy".parse().unwrap_or(Argument::Pe);
        let Argument::Memory { tile: Some(t), output: Some(_), .. } = &made else { panic!("{made:?}") };
        assert_eq!((t.extents.as_slice(), t.swizzle), (&[128, 64][..], Swizzle::B128));
        assert_eq!(made.to_string().parse(), Ok(made));
        assert_eq!(
            "map:8:sym:zeros:f32[9]".parse::<Argument>().map(|a| a.to_string()),
            Ok("map:8/0:sym:zeros:f32[9]".into())
        );
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in [
            "map:8",
            "map:8:i32:1",
            "map:8/16:npy:x.npy",
            "map:8y:npy:x.npy",
            "map:8:map:8:npy:x.npy",
            "sym:map:8:npy:x.npy",
            "",
            "i32",
            "i32:",
            "i32:x",
            "i32:3000000000",
            "u8:-1",
            "u8:256",
            "u8:0x100",
            "f32:one",
            "npy:",
            "npy:x=",
            "zeros:",
            "zeros:0",
            "zeros:f32[]",
            "zeros:f32[1",
            "zeros:f33[4]",
            "zeros:f64[99999999999999999]",
            "sym:i32:1",
            "sym:sym",
            "peers:x",
            "mc:",
            "peer:1+",
            "bytes:0",
            "bytes:zz",
            "pe:1",
            "i32:--1",
            "i32:+-1",
        ] {
            assert!(text.parse::<Argument>().is_err(), "{text}");
        }
    }
}
