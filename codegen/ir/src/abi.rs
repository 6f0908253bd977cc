//! The parameters of a kernel's entry point, as [`weft_abi::entry_params`] places them. The
//! compiler and the launcher use the same placement.

use crate::diag::{Code, Diagnostic};
use crate::head::MachineParam;
use crate::machine::{Kernel, Type};
use crate::names::Space;
use crate::op::{Address, Control, Operation, Thread};
use weft_abi::{KernelInfo, MAX_PARAM_BYTES, ParamInfo, RoleInfo, entry_params};

pub use weft_abi::{EntryKind, EntryParam, MAP_ALIGN, MAP_BYTES};

/// A parameter that cannot be passed by a launch.
pub const BAD_PARAM: Code = Code(217);

/// The maximum number of bytes of statically allocated shared memory. A kernel that needs more uses
/// dynamic shared memory, which the launch provides. (CUDA C++ Programming Guide, Compute
/// Capabilities.)
pub const MAX_STATIC_SHARED: u64 = 48 * 1024;
/// The maximum number of bytes of shared memory of a CTA (CUDA C++ Programming Guide, Compute
/// Capabilities).
pub const MAX_SHARED: u64 = 227 * 1024;

/// The number of bytes of shared memory that a kernel's tensors need together. Each is aligned, and
/// they lie in the order of the code.
pub fn shared_bytes(kernel: &Kernel) -> u64 {
    let mut end = 0u64;
    kernel.walk(&mut |_, inst| {
        if let Some(Address::Shared { bytes, align, .. }) = inst.op.address() {
            end = place_shared(end, *bytes, *align).map_or(u64::MAX, |at| at.saturating_add(*bytes));
        }
    });
    end
}

/// The bytes of dynamic shared memory that a launch of the kernel provides.
pub fn dynamic_shared(kernel: &Kernel) -> u32 {
    match shared_bytes(kernel) {
        bytes if bytes <= MAX_STATIC_SHARED => 0,
        bytes => u32::try_from(bytes).unwrap_or(u32::MAX),
    }
}

/// The offset in shared memory of a tensor of `bytes` bytes that follows the first `end` bytes. It
/// is `None` beyond 64 bits.
pub fn place_shared(end: u64, bytes: u64, align: u32) -> Option<u64> {
    let at = end.checked_next_multiple_of(u64::from(align.max(1)))?;
    at.checked_add(bytes).map(|_| at)
}

/// The parameters of a kernel's entry point, in order.
///
/// # Errors
/// Fails if a parameter has a type that cannot be passed, or if the parameters take more than
/// [`MAX_PARAM_BYTES`] ([`BAD_PARAM`]).
pub fn signature(kernel: &Kernel) -> Result<Vec<EntryParam>, Diagnostic> {
    let params = &kernel.head.params;
    let kinds = (0u32..).zip(params).map(|(index, p)| Ok((index, kind(kernel, p)?)));
    entry_params(kinds.collect::<Result<Vec<_>, Diagnostic>>()?).map_err(|e| {
        let span = params.get(e.index as usize).map_or(kernel.span, |p| p.span);
        let message = format!("`{}` has more than {MAX_PARAM_BYTES} bytes of parameters", kernel.name);
        Diagnostic::error(BAD_PARAM, span, message).help("pass a tensor with these values instead")
    })
}

/// Describes a kernel for its launchers.
///
/// # Errors
/// Fails where [`signature`] fails, or if the kernel has no description of its launch
/// ([`BAD_PARAM`]).
pub fn describe(kernel: &Kernel) -> Result<KernelInfo, Diagnostic> {
    let Some(launch) = &kernel.head.launch else {
        let message = format!("the launch of `{}` is not described", kernel.name);
        return Err(Diagnostic::error(BAD_PARAM, kernel.span, message).help(
            "the passes describe the launch of a kernel, so a kernel that was built without them has no \
             description",
        ));
    };
    let entries = signature(kernel)?;
    let end = entries.last().map_or(0, |e| e.offset + e.size);
    let source = |e: &EntryParam| kernel.head.params.get(e.index as usize).map(|p| p.source);
    let params = (0u32..).zip(&launch.params).map(|(i, p)| {
        let entry = entries.iter().find(|e| source(e) == Some(i));
        let (offset, size) = entry.map_or((end, 0), |e| (e.offset, e.size));
        ParamInfo { name: p.name.to_string(), offset, size, kind: p.kind.clone() }
    });
    Ok(KernelInfo {
        name: kernel.name.to_string(),
        block: kernel.block,
        cluster: (kernel.cluster_size() > 1).then_some(kernel.cluster),
        grid: launch.grid.clone(),
        shared: dynamic_shared(kernel),
        planes: launch.planes,
        dependent: is_dependent(kernel),
        roles: roles(kernel),
        waits: Vec::new(),
        params: params.collect(),
    })
}

/// Whether the kernel itself waits for the launches before it.
fn is_dependent(kernel: &Kernel) -> bool {
    let mut found = false;
    kernel.walk(&mut |_, inst| found |= matches!(inst.op.thread(), Some(Thread::WaitDependencies {})));
    found
}

/// The roles that have names, in the order of their threads.
fn roles(kernel: &Kernel) -> Vec<RoleInfo> {
    let mut found = Vec::new();
    kernel.walk(&mut |_, inst| {
        if let Some(Control::Role { name, first, threads, .. }) = inst.op.control()
            && !name.is_empty()
        {
            found.push(RoleInfo { name: name.to_string(), first: *first, threads: *threads });
        }
    });
    found
}

/// The way in which a parameter is passed.
fn kind(kernel: &Kernel, param: &MachineParam) -> Result<EntryKind, Diagnostic> {
    let launch = kernel.head.launch.as_ref().and_then(|l| l.params.get(param.source as usize));
    if let Some(weft_abi::ParamKind::Hidden(hidden)) = launch.map(|p| &p.kind)
        && hidden.entry() == EntryKind::Map
    {
        return Ok(EntryKind::Map);
    }
    let bad = |help: &str| {
        let message = format!("parameter `{}` cannot be a {}", param.name, param.ty);
        Err(Diagnostic::error(BAD_PARAM, param.span, message).help(help))
    };
    match param.ty {
        Type::Pointer(Space::Shared | Space::Cluster | Space::Register) => {
            bad("a caller cannot pass shared memory or registers: declare the tensor in the kernel")
        }
        Type::Pointer(_) if !param.align.is_power_of_two() => bad("an alignment must be a power of two"),
        Type::Pointer(_) => Ok(EntryKind::Address { align: param.align }),
        Type::Scalar(s) => Ok(EntryKind::Number(s)),
        Type::Vector(..) | Type::Unit => bad("pass the numbers one by one, or pass a tensor of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;
    use crate::machine::Builder;

    fn kernel(params: Vec<(Type, u32)>) -> Kernel {
        let mut b = Builder::new("k", [32, 1, 1]);
        for (ty, align) in params {
            match ty {
                Type::Pointer(space) => b.pointer_param("p", space, align).unwrap(),
                ty => b.param("p", ty).unwrap(),
            };
        }
        b.finish()
    }

    #[test]
    fn natural_alignment_in_order() {
        let pointer = Type::Pointer(Space::Symmetric);
        let k = kernel(vec![
            (Type::Scalar(Scalar::I32), 1),
            (pointer.clone(), 16),
            (Type::Scalar(Scalar::Bool), 1),
            (Type::Scalar(Scalar::F16), 1),
            (pointer, 8),
        ]);
        let entry = signature(&k).unwrap();
        let offsets: Vec<_> = entry.iter().map(|p| (p.index, p.offset, p.size)).collect();
        assert_eq!(offsets, [(0, 0, 4), (1, 8, 8), (2, 16, 1), (3, 18, 2), (4, 24, 8)]);
        assert_eq!(entry[1].kind, EntryKind::Address { align: 16 });
    }

    #[test]
    fn memory_of_the_cta_is_not_passed() {
        for space in [Space::Shared, Space::Register] {
            let k = kernel(vec![(Type::Pointer(space), 1)]);
            assert_eq!(signature(&k).unwrap_err().code, BAD_PARAM);
        }
    }

    #[test]
    fn vectors_and_too_many_bytes_are_errors() {
        let k = kernel(vec![(Type::Vector(Scalar::F32, 4), 1)]);
        assert_eq!(signature(&k).unwrap_err().code, BAD_PARAM);
        let e = signature(&kernel(vec![(Type::Scalar(Scalar::I64), 1); 513])).unwrap_err();
        assert!(e.message.contains("4096 bytes"), "{e}");
    }
}
