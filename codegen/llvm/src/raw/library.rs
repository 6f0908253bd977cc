//! Bitcode files, which are opened lazily: the file is mapped and the module's declarations are
//! read, but not the bodies.

use super::{Diagnostics, c_string};
use crate::nvshmem::Function;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::llvm_sys::LLVMTypeKind;
use inkwell::llvm_sys::prelude::{LLVMMemoryBufferRef, LLVMModuleRef, LLVMTypeRef};
use inkwell::llvm_sys::{bit_reader, core, linker};
use inkwell::module::Module;
use inkwell::types::AsTypeRef;
use inkwell::values::FunctionValue;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Opens a bitcode file. `diagnostics` collects the errors of this context.
///
/// # Errors
/// Fails with the message of the system or of LLVM.
pub(crate) fn open<'c>(
    context: &'c Context,
    diagnostics: &Diagnostics<'c>,
    path: &Path,
) -> Result<Module<'c>, String> {
    let buffer = map(path)?;
    let mut module: LLVMModuleRef = ptr::null_mut();
    // SAFETY: the context is alive, and the buffer is one that LLVM made. LLVM owns it afterwards, unless it fails.
    let failed = unsafe { bit_reader::LLVMGetBitcodeModuleInContext2(context.raw(), buffer, &mut module) };
    if failed == 0 && !module.is_null() {
        // SAFETY: LLVM has made a module, is no longer the owner of it, and it belongs to `context`.
        return Ok(unsafe { Module::new(module) });
    }
    // SAFETY: reading has failed, so the buffer is still ours, and this is its last use.
    unsafe { core::LLVMDisposeMemoryBuffer(buffer) };
    Err(diagnostics.take().into_iter().next().unwrap_or_else(|| "not LLVM bitcode".into()))
}

fn map(path: &Path) -> Result<LLVMMemoryBufferRef, String> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a NUL")?;
    let mut buffer = ptr::null_mut();
    let mut message = ptr::null_mut();
    // SAFETY: the name ends in NUL, both results are locals, and this code disposes the message if it is not null.
    unsafe {
        if core::LLVMCreateMemoryBufferWithContentsOfFile(name.as_ptr(), &mut buffer, &mut message) == 0 {
            return Ok(buffer);
        }
        if message.is_null() {
            return Err("it cannot be read".into());
        }
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        core::LLVMDisposeMessage(message);
        Err(text)
    }
}

/// Links the declarations of `into`, and everything that these need. Also links every external
/// function and variable of `library`. Only bodies that are linked are read.
///
/// # Errors
/// Fails with the message of LLVM.
pub(crate) fn link<'c>(
    into: &Module<'c>,
    diagnostics: &Diagnostics<'c>,
    library: Module<'c>,
) -> Result<(), String> {
    // Both modules get one layout and triple. Otherwise LLVM warns, and reads the library's in
    // vain.
    let library = std::mem::ManuallyDrop::new(library);
    // SAFETY: both modules are alive and of one context, and the layout's text ends in NUL. The linker disposes the
    // library, and `ManuallyDrop` keeps us from doing it again.
    let failed = unsafe {
        core::LLVMSetDataLayout(library.as_mut_ptr(), super::LAYOUT.as_ptr());
        // The linker owns the library from here on, whatever it returns.
        linker::LLVMLinkModules2(into.as_mut_ptr(), library.as_mut_ptr())
    };
    match (failed, diagnostics.take().into_iter().next()) {
        (0, None) => Ok(()),
        (_, why) => Err(why.unwrap_or_else(|| "it cannot be linked".into())),
    }
}

/// Deletes the lists of variables that passes had to keep. The PTX printer prints the variables in
/// such a list before everything else, in the order of their addresses in this process. Without the
/// lists it prints all variables in the module's order.
pub(crate) fn forget_used(module: &Module<'_>) {
    for name in [c"llvm.used", c"llvm.compiler.used"] {
        // SAFETY: the module is alive and the name ends in NUL. The handle is not null, nothing refers to such a list,
        // and nobody has the handle after this.
        unsafe {
            let list = core::LLVMGetNamedGlobal(module.as_mut_ptr(), name.as_ptr());
            if !list.is_null() {
                core::LLVMDeleteGlobal(list);
            }
        }
    }
}

/// The first `N` elements of a variable's initial value, if all of them are integers.
pub(crate) fn initial_integers<const N: usize>(module: &Module<'_>, variable: &str) -> Option<[u64; N]> {
    let name = c_string(variable);
    let mut out = [0; N];
    // SAFETY: the module is alive and the name ends in NUL. Every handle was compared with null before its use, and
    // an element was found to be an integer before it is read as one.
    unsafe {
        let global = core::LLVMGetNamedGlobal(module.as_mut_ptr(), name.as_ptr());
        let init = (!global.is_null()).then(|| core::LLVMGetInitializer(global)).filter(|i| !i.is_null())?;
        // For a number, LLVM returns the number itself as every element.
        let kind = core::LLVMGetTypeKind(core::LLVMTypeOf(init));
        if !matches!(kind, LLVMTypeKind::LLVMStructTypeKind | LLVMTypeKind::LLVMArrayTypeKind) {
            return None;
        }
        for (index, number) in (0..).zip(&mut out) {
            let element = core::LLVMGetAggregateElement(init, index);
            if element.is_null() || core::LLVMIsAConstantInt(element).is_null() {
                return None;
            }
            *number = core::LLVMConstIntGetZExtValue(element);
        }
    }
    Some(out)
}

/// The declaration of a function: its parameters and its result.
pub(crate) fn declared(name: String, f: FunctionValue<'_>) -> Function {
    let ty = f.get_type();
    let byval = Attribute::get_named_enum_kind_id("byval");
    let passed = |bytes: u64, is_int: bool| if is_int { bytes.max(4) } else { bytes };
    let params = (0u32..).zip(ty.get_param_types()).map(|(at, param)| {
        match f.get_enum_attribute(AttributeLoc::Param(at), byval) {
            Some(by_value) => bytes(by_value.get_type_value().as_type_ref(), DEPTH),
            None => passed(bytes(param.as_type_ref(), DEPTH), param.is_int_type()),
        }
    });
    let result = ty.get_return_type().map(|ty| passed(bytes(ty.as_type_ref(), DEPTH), ty.is_int_type()));
    Function { name, params: params.collect(), result }
}

/// The maximum nesting of structs that is examined. NVSHMEM's are far below it, but a damaged file
/// can contain any.
const DEPTH: u32 = 16;

/// The size in bytes of a type that consists of numbers and pointers. Parts of other types, or
/// nested deeper, count 0.
fn bytes(ty: LLVMTypeRef, depth: u32) -> u64 {
    use LLVMTypeKind as K;
    // SAFETY: the type is that of a function which is alive.
    unsafe {
        match core::LLVMGetTypeKind(ty) {
            K::LLVMIntegerTypeKind => u64::from(core::LLVMGetIntTypeWidth(ty)).div_ceil(8),
            K::LLVMHalfTypeKind | K::LLVMBFloatTypeKind => 2,
            K::LLVMFloatTypeKind => 4,
            K::LLVMDoubleTypeKind | K::LLVMPointerTypeKind => 8,
            K::LLVMStructTypeKind if depth > 0 => (0..core::LLVMCountStructElementTypes(ty))
                .map(|i| bytes(core::LLVMStructGetTypeAtIndex(ty, i), depth - 1))
                .sum(),
            _ => 0,
        }
    }
}
