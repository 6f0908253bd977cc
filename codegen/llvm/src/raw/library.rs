//! Bitcode files, opened lazily: the file is mapped, the module's declarations are read, bodies are not.

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

/// Opens a bitcode file. `said` collects what this context says.
///
/// # Errors
/// Fails with the message of the system or of LLVM.
pub(crate) fn open<'c>(
    context: &'c Context,
    said: &Diagnostics<'c>,
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
    Err(said.take().into_iter().next().unwrap_or_else(|| "not LLVM bitcode".into()))
}

fn map(path: &Path) -> Result<LLVMMemoryBufferRef, String> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a NUL")?;
    let mut buffer = ptr::null_mut();
    let mut message = ptr::null_mut();
    // SAFETY: the name ends in NUL, both results are locals, and the message is ours to dispose where it is not null.
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

/// Links what `into` declares, and what that needs, and every function and variable of `library` that others may
/// discard least (external ones). Only bodies that are linked are read.
///
/// # Errors
/// Fails with the message of LLVM.
pub(crate) fn link<'c>(into: &Module<'c>, said: &Diagnostics<'c>, library: Module<'c>) -> Result<(), String> {
    // One layout and triple for both: else LLVM warns, and reads the library's for naught.
    let library = std::mem::ManuallyDrop::new(library);
    // SAFETY: both modules are alive and of one context, and the layout's text ends in NUL. The linker disposes the
    // library, and `ManuallyDrop` keeps us from doing it again.
    let failed = unsafe {
        core::LLVMSetDataLayout(library.as_mut_ptr(), super::LAYOUT.as_ptr());
        // It owns the library from here on, whatever it answers.
        linker::LLVMLinkModules2(into.as_mut_ptr(), library.as_mut_ptr())
    };
    match (failed, said.take().into_iter().next()) {
        (0, None) => Ok(()),
        (_, why) => Err(why.unwrap_or_else(|| "it cannot be linked".into())),
    }
}

/// Deletes the lists of variables that passes had to keep. The printer of PTX puts what such a list names before
/// everything else, in the order of the addresses that the variables have in this process; without the lists all
/// variables are printed in the module's order.
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

/// The first `N` elements, all of them integers, that a variable begins with.
pub(crate) fn initial_integers<const N: usize>(module: &Module<'_>, variable: &str) -> Option<[u64; N]> {
    let name = c_string(variable);
    let mut out = [0; N];
    // SAFETY: the module is alive and the name ends in NUL. Every handle was compared with null before its use, and
    // an element was found to be an integer before it is read as one.
    unsafe {
        let global = core::LLVMGetNamedGlobal(module.as_mut_ptr(), name.as_ptr());
        let init = (!global.is_null()).then(|| core::LLVMGetInitializer(global)).filter(|i| !i.is_null())?;
        // Of a number LLVM takes every element to be the number itself.
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

/// What a function takes and returns.
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

/// Deepest nesting of structs that is looked into. NVSHMEM's are far from it; a file may claim any.
const DEPTH: u32 = 16;

/// The size in bytes of a type made of numbers and pointers. What has another type, or lies deeper, counts nothing.
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
