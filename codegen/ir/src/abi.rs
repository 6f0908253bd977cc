//! How a launch passes a kernel its parameters: what the compiler expects is what the launcher writes.
//!
//! The rule is PTX's (ISA, Kernel Function Parameters): parameters in order, each at the next offset of its natural
//! alignment. Tensors and barriers are 64-bit addresses; a team takes no parameter at all, since hidden parameters
//! ([`ParamKind`](crate::kernel::ParamKind)) bring what the code needs of it.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Kernel, Param};
use crate::names::{Scalar, Space};
use crate::types::Type;

/// A parameter that no launch can pass.
pub const BAD_PARAM: Code = Code(217);

/// Most bytes of parameters a kernel can have with any driver. (PTX 8.1 and drivers of its time take 32,764.)
pub const MAX_BYTES: u32 = 4096;

/// What a parameter is, once passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// A 64-bit address, a multiple of `align`.
    Address {
        /// In bytes; a power of two.
        align: u32,
    },
    /// A number; a `bool` is a byte, 0 or 1.
    Number(Scalar),
}

/// One parameter of the entry point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EntryParam {
    /// Which of [`Kernel::params`].
    pub index: u32,
    /// Bytes from the start of the parameter block.
    pub offset: u32,
    /// In bytes.
    pub size: u32,
    /// Of its place in the block, in bytes.
    pub align: u32,
    /// What it is.
    pub kind: EntryKind,
}

/// The parameters of a kernel's entry point, in order.
///
/// # Errors
/// [`BAD_PARAM`]: a parameter of a type that cannot be passed, or more of them than [`MAX_BYTES`].
pub fn signature(kernel: &Kernel) -> Result<Vec<EntryParam>, Diagnostic> {
    let mut end = 0;
    let mut out = Vec::with_capacity(kernel.params.len());
    for (index, param) in (0u32..).zip(&kernel.params) {
        let Some(kind) = kind(param)? else { continue };
        let size = match kind {
            EntryKind::Address { .. } => 8,
            EntryKind::Number(s) => s.bytes(),
        };
        let offset = u32::next_multiple_of(end, size);
        end = offset + size;
        if end > MAX_BYTES {
            let message = format!("`{}` has more than {MAX_BYTES} bytes of parameters", kernel.name);
            return Err(
                Diagnostic::error(BAD_PARAM, param.span, message).help("pass a tensor of them instead")
            );
        }
        out.push(EntryParam { index, offset, size, align: size, kind });
    }
    Ok(out)
}

/// How a parameter is passed; `None` where it is not.
fn kind(param: &Param) -> Result<Option<EntryKind>, Diagnostic> {
    match &param.ty {
        Type::Tensor(_) | Type::Pointer(_)
            if matches!(param.ty.space(), Some(Space::Shared | Space::Register)) =>
        {
            let message = format!("parameter `{}` cannot be a {}", param.name, param.ty);
            Err(Diagnostic::error(BAD_PARAM, param.span, message)
                .help("a caller has no shared memory or registers to pass: declare it in the kernel"))
        }
        Type::Tensor(t) => Ok(Some(EntryKind::Address { align: t.align.max(1) })),
        Type::Barrier => Ok(Some(EntryKind::Address { align: 8 })),
        Type::Pointer(_) => Ok(Some(EntryKind::Address { align: 1 })),
        Type::Scalar(s) => Ok(Some(EntryKind::Number(*s))),
        Type::Team => Ok(None),
        Type::Vector(..) | Type::Unit => {
            let message = format!("parameter `{}` cannot be a {}", param.name, param.ty);
            Err(Diagnostic::error(BAD_PARAM, param.span, message)
                .help("pass numbers one by one, or a tensor of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use weft_layout::Layout;

    fn offsets(types: Vec<Type>) -> Vec<(u32, u32, u32)> {
        let mut b = Builder::new("k", [32, 1, 1]);
        for ty in types {
            b.param("p", ty).unwrap();
        }
        let entry = signature(&b.finish()).unwrap();
        entry.iter().map(|p| (p.index, p.offset, p.size)).collect()
    }

    #[test]
    fn natural_alignment_in_order_without_teams() {
        let x = Builder::tensor(Scalar::BF16, Space::Symmetric, Layout::new(8, 1).unwrap(), 16);
        let types = vec![
            Type::Scalar(Scalar::I32),
            x,
            Type::Team,
            Type::Scalar(Scalar::Bool),
            Type::Scalar(Scalar::F16),
            Type::Barrier,
        ];
        assert_eq!(offsets(types), [(0, 0, 4), (1, 8, 8), (3, 16, 1), (4, 18, 2), (5, 24, 8)]);
    }

    #[test]
    fn the_type_says_how_addresses_are_aligned() {
        let mut b = Builder::new("k", [32, 1, 1]);
        b.param("x", Builder::tensor(Scalar::F32, Space::Global, Layout::new(8, 1).unwrap(), 16)).unwrap();
        assert_eq!(signature(b.kernel()).unwrap()[0].kind, EntryKind::Address { align: 16 });
    }

    #[test]
    fn memory_of_the_cta_is_not_passed() {
        for ty in [
            Builder::tensor(Scalar::F32, Space::Shared, Layout::new(8, 1).unwrap(), 16),
            Type::Pointer(Space::Register),
        ] {
            let mut b = Builder::new("k", [32, 1, 1]);
            b.param("x", ty).unwrap();
            assert_eq!(signature(b.kernel()).unwrap_err().code, BAD_PARAM);
        }
    }

    #[test]
    fn vectors_and_too_many_bytes_are_errors() {
        let mut b = Builder::new("k", [32, 1, 1]);
        b.param("v", Type::Vector(Scalar::F32, 4)).unwrap();
        assert_eq!(signature(b.kernel()).unwrap_err().code, BAD_PARAM);
        let mut b = Builder::new("k", [32, 1, 1]);
        for _ in 0..513 {
            b.param("n", Type::Scalar(Scalar::I64)).unwrap();
        }
        let e = signature(b.kernel()).unwrap_err();
        assert!(e.message.contains("4096 bytes"), "{e}");
    }
}
