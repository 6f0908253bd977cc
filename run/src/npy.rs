//! The header of NumPy's `.npy` files (numpy.lib.format, versions 1.0 to 3.0), for arrays of plain numbers.

const MAGIC: &[u8] = b"\x93NUMPY";

/// The contents of a header, which is a Python dict literal: `{'descr': '<f4', 'fortran_order':
/// False, 'shape': (2, 3), }`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The element type: byte order, kind, number of bytes.
    pub descr: String,
    /// Whether the first index varies fastest.
    pub fortran_order: bool,
    /// The extents of the array.
    pub shape: Vec<u64>,
}

impl Header {
    /// Reads a header, and returns it with the bytes after it. The error says what the file is or
    /// has instead.
    pub fn read(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
        if !bytes.starts_with(MAGIC) {
            return Err(
                "is not a .npy file: it does not start with \\x93NUMPY (save it with numpy.save)".into()
            );
        }
        let (major, minor) = (bytes.get(6).copied().unwrap_or(0), bytes.get(7).copied().unwrap_or(0));
        if !(1..=3).contains(&major) || minor != 0 {
            return Err(format!("has version {major}.{minor} of the .npy format; expected 1.0, 2.0 or 3.0"));
        }
        // In version 1 the header's length has 2 bytes, and in later versions 4; it must be within
        // the file.
        let start = if major >= 2 { 12 } else { 10 };
        let length = bytes.get(8..start).unwrap_or_default();
        let length = length.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b));
        let end = start.saturating_add(length);
        let Some(text) = bytes.get(start..end).filter(|text| !text.is_empty()) else {
            return Err("is truncated within its header".into());
        };
        let text =
            std::str::from_utf8(text).map_err(|_| "has a damaged header: it is not text".to_owned())?;
        Ok((fields(text.trim())?, &bytes[end..]))
    }

    /// The bytes of the header. The data after it begins at a multiple of 64.
    pub fn bytes(&self) -> Vec<u8> {
        let order = if self.fortran_order { "True" } else { "False" };
        let shape: String = self.shape.iter().map(|n| format!("{n}, ")).collect();
        let text = format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}", self.descr);
        // The length has 2 bytes if it fits, which it does except for thousands of modes.
        let start = if text.len() < 65_000 { 10 } else { 12 };
        let length = (start + text.len() + 1).next_multiple_of(64) - start;
        let mut out = MAGIC.to_vec();
        if start == 10 {
            out.extend_from_slice(&[1, 0]);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        } else {
            out.extend_from_slice(&[2, 0]);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
        out.extend_from_slice(text.as_bytes());
        out.resize(start + length - 1, b' ');
        out.push(b'\n');
        out
    }
}

/// Parses `{'key': value, ...}`, where the values are those of a header.
fn fields(text: &str) -> Result<Header, String> {
    let damaged = |why: &str| format!("has a damaged header: {why}");
    let body = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut rest = body.ok_or_else(|| damaged("it is not {...}"))?.trim();
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or_else(|| damaged("a name in quotes is missing"))?;
        let value =
            after.trim_start().strip_prefix(':').ok_or_else(|| damaged("a `:` is missing"))?.trim_start();
        let after = match key {
            "descr" if value.starts_with('[') => return Err("contains records instead of numbers".into()),
            "descr" => {
                let (ty, after) = quoted(value).ok_or_else(|| damaged("`descr` is not a type"))?;
                descr = Some(ty.to_owned());
                after
            }
            "fortran_order" => {
                let words = [("True", true), ("False", false)];
                let word = words.iter().find_map(|(word, is)| Some((*is, value.strip_prefix(word)?)));
                let (is, after) = word.ok_or_else(|| damaged("`fortran_order` is neither True nor False"))?;
                fortran_order = Some(is);
                after
            }
            "shape" => {
                let tuple = value.strip_prefix('(').and_then(|value| value.split_once(')'));
                let (extents, after) = tuple.ok_or_else(|| damaged("`shape` is not a tuple"))?;
                let extents = extents.split(',').map(str::trim).filter(|extent| !extent.is_empty());
                let extents: Result<Vec<u64>, _> = extents.map(str::parse).collect();
                shape = Some(
                    extents.map_err(|_| damaged("`shape` has an extent that is not a number of 64 bits"))?,
                );
                after
            }
            _ => return Err(damaged("it has a field other than `descr`, `fortran_order` and `shape`")),
        };
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.is_empty() => after,
            None => return Err(damaged("a `,` is missing")),
        };
    }
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
        _ => Err(damaged("one of `descr`, `fortran_order`, `shape` is missing")),
    }
}

/// Parses a string literal without escapes, and returns the rest of the text.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, shape: &[u64]) -> Header {
        Header { descr: descr.into(), fortran_order: false, shape: shape.to_vec() }
    }

    #[test]
    fn headers_read_back_and_are_aligned() {
        let shapes = [&[][..], &[7], &[2, 3], &[0], &[u64::MAX; 40], &[u64::MAX; 4000]];
        for shape in shapes {
            let header = header("<f4", shape);
            let mut bytes = header.bytes();
            assert!(bytes.len().is_multiple_of(64));
            bytes.push(1);
            assert_eq!(Header::read(&bytes).unwrap(), (header, &[1][..]));
        }
    }

    #[test]
    fn formats_of_the_future_are_refused() {
        let mut bytes = header("<f4", &[7]).bytes();
        for (major, minor, fits) in [(1, 0, true), (0, 0, false), (1, 1, false), (4, 0, false), (9, 0, false)]
        {
            (bytes[6], bytes[7]) = (major, minor);
            let read = Header::read(&bytes).map(drop);
            assert_eq!(read.is_ok(), fits, "{major}.{minor}: {read:?}");
            assert!(read.err().is_none_or(|why| why.contains(&format!("version {major}.{minor}"))));
        }
    }

    #[test]
    fn other_ways_to_write_the_same() {
        for text in [
            "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 4)}",
            "{\"shape\":(3,4,),\"fortran_order\":False,\"descr\":\"<f2\"}  \n",
            " { 'descr' : '<f2' , 'shape' : ( 3 , 4 ) , 'fortran_order' : False , } ",
        ] {
            assert_eq!(fields(text.trim()).unwrap(), header("<f2", &[3, 4]), "{text}");
        }
    }

    #[test]
    fn what_is_no_header_says_why() {
        for (text, why) in [
            ("", "{...}"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", "records"),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", "neither True nor False"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': 3}", "not a tuple"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (-3,)}", "not a number"),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (18446744073709551616,)}", "not a number"),
            ("{'descr': '<f4', 'shape': (3,)}", "missing"),
            ("{'descr': '<f4' 'shape': (3,)}", "`,` is missing"),
            ("{'descr' '<f4'}", "`:` is missing"),
            ("{'other': 1}", "other than `descr`"),
            ("{descr: '<f4'}", "quotes"),
        ] {
            let found = fields(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
