//! Line information: the places in the `.weft` text from which instructions come (`.file` and
//! `.loc` in PTX).

use super::{Func, Ir, c_string};
use crate::Location;
use inkwell::llvm_sys::debuginfo::{self, LLVMDIFlagZero, LLVMDWARFSourceLanguage};
use inkwell::llvm_sys::prelude::{LLVMBool, LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef, LLVMValueRef};
use inkwell::llvm_sys::{LLVMModuleFlagBehavior, core};
use inkwell::module::Module;
use std::collections::HashMap;
use std::ffi::{c_char, c_uint};
use std::ptr::null_mut;
use std::sync::Arc;

/// `DICompileUnit::DebugDirectivesOnly`: `.loc` without the DWARF sections. The enum of the C
/// header lacks it, but the function accepts any number of the C++ enum.
const DIRECTIVES_ONLY: c_uint = 3;

unsafe extern "C" {
    fn LLVMDIBuilderCreateCompileUnit(
        builder: LLVMDIBuilderRef,
        language: LLVMDWARFSourceLanguage,
        file: LLVMMetadataRef,
        producer: *const c_char,
        producer_len: usize,
        optimized: LLVMBool,
        flags: *const c_char,
        flags_len: usize,
        runtime: c_uint,
        split: *const c_char,
        split_len: usize,
        kind: c_uint,
        dwo: c_uint,
        split_inlining: LLVMBool,
        profiling: LLVMBool,
        sysroot: *const c_char,
        sysroot_len: usize,
        sdk: *const c_char,
        sdk_len: usize,
    ) -> LLVMMetadataRef;
}

/// The line information of one module. It must be dropped before its module: `emit` drops it when
/// all kernels are lowered.
pub(crate) struct Lines {
    builder: LLVMDIBuilderRef,
    files: Vec<LLVMMetadataRef>,
    /// The current kernel, and the place of its head.
    function: Option<(LLVMMetadataRef, Location)>,
    /// The scopes of the function in other files than that of the kernel's head.
    scopes: HashMap<u32, LLVMMetadataRef>,
}

impl Lines {
    /// Creates the line information for a module of these source files. The result is `None` if
    /// there are no files.
    pub fn new(ir: &Ir<'_>, files: &[Arc<str>]) -> Option<Lines> {
        if files.is_empty() {
            return None;
        }
        const VERSION: &str = "Debug Info Version";
        const PRODUCER: &str = "warpweft";
        // SAFETY: the module is alive, the texts are lent with their lengths or end in NUL, and `files` has a first
        // element. The builder belongs to the module's context; `Drop` disposes it, while `ir` is alive (see
        // [`Lines`]).
        unsafe {
            let version = core::LLVMConstInt(ir.int(32).0, debuginfo::LLVMDebugMetadataVersion().into(), 0);
            core::LLVMAddModuleFlag(
                ir.module(),
                LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning,
                VERSION.as_ptr().cast(),
                VERSION.len(),
                core::LLVMValueAsMetadata(version),
            );
            let builder = debuginfo::LLVMCreateDIBuilder(ir.module());
            let file = |name: &Arc<str>| {
                let name = c_string(name);
                let length = name.as_bytes().len();
                debuginfo::LLVMDIBuilderCreateFile(builder, name.as_ptr(), length, c"".as_ptr(), 0)
            };
            let files: Vec<_> = files.iter().map(file).collect();
            let (none, producer) = (c"".as_ptr(), PRODUCER.as_ptr().cast());
            let language = LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC;
            LLVMDIBuilderCreateCompileUnit(
                builder,
                language,
                files[0],
                producer,
                PRODUCER.len(),
                1,
                none,
                0,
                0,
                none,
                0,
                DIRECTIVES_ONLY,
                0,
                0,
                0,
                none,
                0,
                none,
                0,
            );
            Some(Lines { builder, files, function: None, scopes: HashMap::new() })
        }
    }

    /// Begins the code of `f`, whose head is at `head`.
    pub fn enter(&mut self, ir: &Ir<'_>, f: Func<'_>, name: &str, head: Option<Location>) {
        self.leave(ir);
        let Some((head, file)) = head.and_then(|h| Some((h, *self.files.get(h.file as usize)?))) else {
            return;
        };
        let name = c_string(name);
        let length = name.as_bytes().len();
        // SAFETY: the builder, the file and the function are alive and of one context, and the name is lent with its
        // length.
        unsafe {
            let b = self.builder;
            let ty = debuginfo::LLVMDIBuilderCreateSubroutineType(b, file, null_mut(), 0, LLVMDIFlagZero);
            let (n, line) = (name.as_ptr(), head.line);
            let function = debuginfo::LLVMDIBuilderCreateFunction(
                b,
                file,
                n,
                length,
                n,
                length,
                file,
                line,
                ty,
                0,
                1,
                line,
                LLVMDIFlagZero,
                1,
            );
            debuginfo::LLVMSetSubprogram(f.value.0, function);
            self.function = Some((function, head));
            self.scopes = HashMap::from([(head.file, function)]);
        }
        self.at(ir, Some(head));
    }

    /// Sets the place of the following instructions. If `location` is `None`, it is the kernel's
    /// head.
    pub fn at(&mut self, ir: &Ir<'_>, location: Option<Location>) {
        let Some((function, head)) = self.function else { return };
        let known = |l: &Location| (l.file as usize) < self.files.len();
        let Location { file, line, column } = location.filter(known).unwrap_or(head);
        let (builder, files) = (self.builder, &self.files);
        // SAFETY: the builder and the function are alive, and `file` is below the number of files.
        let scope = *self.scopes.entry(file).or_insert_with(|| unsafe {
            debuginfo::LLVMDIBuilderCreateLexicalBlockFile(builder, function, files[file as usize], 0)
        });
        // SAFETY: the scope is alive, and the builder and the place belong to one context.
        unsafe {
            let place =
                debuginfo::LLVMDIBuilderCreateDebugLocation(ir.ctx(), line, column, scope, null_mut());
            core::LLVMSetCurrentDebugLocation2(ir.builder.as_mut_ptr(), place);
        }
    }

    /// Ends the debug information of a kernel.
    pub fn leave(&mut self, ir: &Ir<'_>) {
        self.function = None;
        // SAFETY: the builder is alive, and LLVM takes null as no place.
        unsafe { core::LLVMSetCurrentDebugLocation2(ir.builder.as_mut_ptr(), null_mut()) };
    }
}

/// The kind of metadata that stores the place of a load, because LLVM drops the place of an
/// instruction that it moves.
const PLACE: &str = "weft.place";

fn place_kind(context: LLVMContextRef) -> c_uint {
    // SAFETY: every caller passes a context that is alive, and the text is lent with its length.
    unsafe { core::LLVMGetMDKindIDInContext(context, PLACE.as_ptr().cast(), PLACE.len() as c_uint) }
}

impl Ir<'_> {
    /// Stores the place of an instruction that passes can move.
    pub(super) fn remember_place(&self, instruction: LLVMValueRef) {
        // SAFETY: the builder and the instruction are alive and of one context; a place that is not null is metadata
        // of it.
        unsafe {
            let place = core::LLVMGetCurrentDebugLocation2(self.builder.as_mut_ptr());
            if !place.is_null() {
                let value = core::LLVMMetadataAsValue(self.ctx(), place);
                core::LLVMSetMetadata(instruction, place_kind(self.ctx()), value);
            }
        }
    }
}

/// Restores the places of instructions that passes have dropped.
pub(crate) fn restore_places(module: &Module<'_>) {
    // SAFETY: the module is alive. Each handle comes from the list that LLVM walks, and `restore_place` removes none.
    unsafe {
        let kind = place_kind(core::LLVMGetModuleContext(module.as_mut_ptr()));
        let mut function = core::LLVMGetFirstFunction(module.as_mut_ptr());
        while !function.is_null() {
            let mut block = core::LLVMGetFirstBasicBlock(function);
            while !block.is_null() {
                let mut instruction = core::LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    restore_place(instruction, kind);
                    instruction = core::LLVMGetNextInstruction(instruction);
                }
                block = core::LLVMGetNextBasicBlock(block);
            }
            function = core::LLVMGetNextFunction(function);
        }
    }
}

unsafe fn restore_place(instruction: LLVMValueRef, kind: c_uint) {
    // SAFETY: the caller passes an instruction that is alive. A handle is used after it was compared with null; the
    // metadata of this kind is a place, since only `remember_place` sets it.
    unsafe {
        let place = core::LLVMGetMetadata(instruction, kind);
        if place.is_null() {
            return;
        }
        let now = debuginfo::LLVMInstructionGetDebugLoc(instruction);
        if now.is_null() || debuginfo::LLVMDILocationGetLine(now) == 0 {
            debuginfo::LLVMInstructionSetDebugLoc(instruction, core::LLVMValueAsMetadata(place));
        }
        core::LLVMSetMetadata(instruction, kind, null_mut());
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: the builder is alive and is disposed once, here.
        unsafe {
            debuginfo::LLVMDIBuilderFinalize(self.builder);
            debuginfo::LLVMDisposeDIBuilder(self.builder);
        }
    }
}
