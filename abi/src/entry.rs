//! The placement of a kernel's parameters: the code reads each one where the launcher writes it.
//!
//! The rule is PTX's (ISA, Kernel Function Parameters): parameters lie in order, each at the next
//! offset with its natural alignment.

use crate::{MAP_ALIGN, MAP_BYTES, Scalar};

/// The maximum number of bytes of parameters that a kernel can have with any driver. (PTX 8.1 and
/// the drivers of its time accept 32,764.)
pub const MAX_PARAM_BYTES: u32 = 4096;

/// The form in which a parameter is passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// A 64-bit address that is a multiple of `align`.
    Address {
        /// The alignment in bytes, a power of two.
        align: u32,
    },
    /// A number. A `bool` is a byte that is 0 or 1.
    Number(Scalar),
    /// A tensor map, which is passed by value.
    Map,
}

impl EntryKind {
    /// The size in the parameter block, in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            EntryKind::Address { .. } => 8,
            EntryKind::Number(s) => s.bytes(),
            EntryKind::Map => MAP_BYTES,
        }
    }

    /// The alignment in the parameter block, in bytes.
    pub fn align(self) -> u32 {
        if self == EntryKind::Map { MAP_ALIGN } else { self.bytes() }
    }
}

/// One parameter of an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryParam {
    /// The index among the kernel's parameters, some of which are not passed.
    pub index: u32,
    /// The offset from the start of the parameter block in bytes.
    pub offset: u32,
    /// The size of the parameter in bytes.
    pub size: u32,
    /// The form in which the parameter is passed.
    pub kind: EntryKind,
}

/// A kernel has more than [`MAX_PARAM_BYTES`] of parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("parameter {index} ends after byte {MAX_PARAM_BYTES}, the limit of a launch")]
pub struct TooManyBytes {
    /// The index of the first parameter that does not fit.
    pub index: u32,
}

/// Places the parameters of an entry point, which are given in order, with their indices.
///
/// # Errors
/// Fails if the parameters take more than [`MAX_PARAM_BYTES`] ([`TooManyBytes`]).
pub fn entry_params(
    params: impl IntoIterator<Item = (u32, EntryKind)>,
) -> Result<Vec<EntryParam>, TooManyBytes> {
    let mut end = 0;
    let place = |(index, kind): (u32, EntryKind)| {
        let size = kind.bytes();
        let offset = u32::next_multiple_of(end, kind.align());
        end = offset + size;
        if end > MAX_PARAM_BYTES {
            Err(TooManyBytes { index })
        } else {
            Ok(EntryParam { index, offset, size, kind })
        }
    };
    params.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: EntryKind = EntryKind::Address { align: 16 };

    #[test]
    fn parameters_lie_in_order_at_their_natural_alignment() {
        let number = EntryKind::Number;
        let params = [
            (0, number(Scalar::I32)),
            (1, ADDRESS),
            // Parameter 2 is not passed.
            (3, number(Scalar::Bool)),
            (4, number(Scalar::F16)),
            (5, number(Scalar::E4M3)),
            (6, ADDRESS),
        ];
        let places: Vec<_> =
            entry_params(params).unwrap().iter().map(|p| (p.index, p.offset, p.size)).collect();
        assert_eq!(places, [(0, 0, 4), (1, 8, 8), (3, 16, 1), (4, 18, 2), (5, 20, 1), (6, 24, 8)]);
        assert_eq!(entry_params([]), Ok(vec![]));
    }

    #[test]
    fn the_first_parameter_without_room_is_named() {
        let addresses = |n| (0..n).map(|i| (i, ADDRESS));
        assert_eq!(entry_params(addresses(512)).map(|p| p[511].offset), Ok(4088));
        assert_eq!(entry_params(addresses(513)), Err(TooManyBytes { index: 512 }));
        let last = [(512, EntryKind::Number(Scalar::U8)), (513, ADDRESS)];
        assert_eq!(entry_params(addresses(512).chain(last)), Err(TooManyBytes { index: 512 }));
    }
}
