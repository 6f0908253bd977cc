//! A thin layer over LLVM's C API: types, values and constants. Only this folder contains unsafe
//! code.
//!
//! inkwell owns the objects that must be freed (context, module, builder, target machine). Its
//! values have one Rust type for each kind of LLVM type. Here an operand is a scalar or a vector
//! with any element type, which is determined at run time, so all values have one type, [`Val`].
//!
//! # Safety
//! The reasons at the unsafe blocks refer to three rules.
//! * A handle is *alive*: a [`Ty`], [`Val`], [`Bb`] or [`Func`] holds an address that LLVM returned
//!   and that is not null. Its object belongs to the context of the [`Ir`] that made it, and `'c`
//!   guarantees that the context lives. A compilation has one context, and only this folder makes
//!   handles.
//! * Operands have the types that an instruction takes. Their types are not checked here, because
//!   the lowering's input is verified IR, whose typing rules imply LLVM's. Builds with debug
//!   assertions, such as those of the tests, run LLVM's verifier on every module.
//! * A text or slice that is *lent* to LLVM outlives the call. LLVM copies what it keeps.
#![expect(unsafe_code, reason = "LLVM's interface is C")]

mod debug;
mod host;
mod inst;
pub(crate) mod library;
mod memory;
#[cfg(open_llvm)]
mod open;

pub(crate) use debug::{Lines, restore_places};
pub(crate) use host::{Diagnostics, reading, set_flags};
pub(crate) use inst::{Cast, Ext, FloatIs, IntIs};
pub(crate) use memory::{Order, Rmw};

use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::llvm_sys::core;
use inkwell::llvm_sys::prelude::{
    LLVMBasicBlockRef, LLVMContextRef, LLVMModuleRef, LLVMTypeRef, LLVMValueRef,
};
use inkwell::module::Module;
use std::ffi::CString;
use std::io::Write;
use std::marker::PhantomData;
use std::path::Path;
use weft_ir::diag::Diagnostic;
use weft_ir::{Scalar, Scope, Space};

/// Prepares LLVM: opens its library, unless it is linked, and installs the handler of fatal errors.
/// It must precede every other call of LLVM.
///
/// # Errors
/// Fails if no usable library of LLVM is found (E0611).
pub(crate) fn open() -> Result<(), Diagnostic> {
    #[cfg(open_llvm)]
    open::open()?;
    host::on_fatal_error();
    Ok(())
}

/// Writes a last message before the process ends. It does not use `eprintln!`, because the test
/// harness holds such text back until the test ends, and the message would be lost.
fn say(message: &str) {
    // There is no way left to report an error.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// A context of LLVM for one compilation.
///
/// # Errors
/// Fails where [`open`] fails.
pub(crate) fn context() -> Result<Context, Diagnostic> {
    open().map(|()| Context::create())
}

/// The path of LLVM's shared library, after it was opened. It is `None` if LLVM is linked.
pub(crate) fn opened() -> Option<&'static Path> {
    #[cfg(open_llvm)]
    return open::opened();
    #[cfg(not(open_llvm))]
    None
}

/// A type of LLVM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ty<'c>(LLVMTypeRef, PhantomData<&'c Context>);

/// A value of LLVM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Val<'c>(LLVMValueRef, PhantomData<&'c Context>);

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bb<'c>(LLVMBasicBlockRef, PhantomData<&'c Context>);

/// A function with its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Func<'c> {
    value: Val<'c>,
    ty: Ty<'c>,
}

/// A module, and the place in it at which instructions are added.
pub(crate) struct Ir<'c> {
    context: &'c Context,
    module: Module<'c>,
    builder: Builder<'c>,
    /// LLVM's numbers for sync scopes, in the order of [`Scope::ALL`].
    scopes: [u32; 4],
}

/// The data layout of NVPTX. It is needed before the target machine exists, because that requires
/// the version of PTX.
pub(crate) const LAYOUT: &std::ffi::CStr = c"e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64";

/// LLVM's name for a scope on NVPTX.
fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Cta => "block",
        Scope::Cluster => "cluster",
        Scope::Gpu => "device",
        Scope::Sys => "",
    }
}

/// The address space of NVPTX for a memory space.
pub(crate) fn address_space(space: Space) -> u32 {
    match space {
        Space::Shared => SHARED,
        Space::Cluster => SHARED_CLUSTER,
        _ => GLOBAL,
    }
}

/// The address space of global memory.
pub(crate) const GLOBAL: u32 = 1;
/// The address space of shared memory.
pub(crate) const SHARED: u32 = 3;
/// The address space of the shared memory of the CTAs of a cluster.
pub(crate) const SHARED_CLUSTER: u32 = 7;
/// The address space of generic addresses.
pub(crate) const GENERIC: u32 = 0;

/// A name without NUL. Everything after a NUL is dropped, because LLVM's names are only for
/// readers.
fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// A count in the type that LLVM takes.
fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

impl<'c> Ir<'c> {
    pub fn new(context: &'c Context) -> Ir<'c> {
        let scopes = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys].map(|scope| {
            let name = scope_name(scope);
            // SAFETY: the context is alive, and the name is lent with its length.
            unsafe { core::LLVMGetSyncScopeID(context.raw(), name.as_ptr().cast(), name.len()) }
        });
        let module = context.create_module("weft");
        // SAFETY: the module is alive, and the layout's text ends in NUL.
        unsafe { core::LLVMSetDataLayout(module.as_mut_ptr(), LAYOUT.as_ptr()) };
        Ir { context, module, builder: context.create_builder(), scopes }
    }

    /// The LLVM module that was built.
    pub fn finished(&self) -> &Module<'c> {
        &self.module
    }

    fn ctx(&self) -> LLVMContextRef {
        self.context.raw()
    }

    fn module(&self) -> LLVMModuleRef {
        self.module.as_mut_ptr()
    }

    fn ty(&self, raw: LLVMTypeRef) -> Ty<'c> {
        Ty(raw, PhantomData)
    }

    fn val(&self, raw: LLVMValueRef) -> Val<'c> {
        Val(raw, PhantomData)
    }

    pub fn void(&self) -> Ty<'c> {
        // SAFETY: the context is alive.
        self.ty(unsafe { core::LLVMVoidTypeInContext(self.ctx()) })
    }

    pub fn int(&self, bits: u32) -> Ty<'c> {
        // SAFETY: the context is alive.
        self.ty(unsafe { core::LLVMIntTypeInContext(self.ctx(), bits) })
    }

    /// The type of an element in registers. fp8 is represented as `i8`, and `bool` is `i1`.
    pub fn scalar(&self, s: Scalar) -> Ty<'c> {
        let ctx = self.ctx();
        // SAFETY: the context is alive.
        self.ty(unsafe {
            match s {
                Scalar::F16 => core::LLVMHalfTypeInContext(ctx),
                Scalar::BF16 => core::LLVMBFloatTypeInContext(ctx),
                Scalar::F32 => core::LLVMFloatTypeInContext(ctx),
                Scalar::F64 => core::LLVMDoubleTypeInContext(ctx),
                Scalar::Bool => return self.int(1),
                _ => return self.int(s.bits()),
            }
        })
    }

    pub fn vector(&self, elem: Ty<'c>, lanes: u32) -> Ty<'c> {
        // SAFETY: the type is alive and a number's.
        self.ty(unsafe { core::LLVMVectorType(elem.0, lanes) })
    }

    pub fn array(&self, elem: Ty<'c>, len: u64) -> Ty<'c> {
        // SAFETY: the type is alive and has a size.
        self.ty(unsafe { core::LLVMArrayType2(elem.0, len) })
    }

    pub fn pointer(&self, space: u32) -> Ty<'c> {
        // SAFETY: the context is alive.
        self.ty(unsafe { core::LLVMPointerTypeInContext(self.ctx(), space) })
    }

    pub fn structure(&self, fields: &[Ty<'c>]) -> Ty<'c> {
        let mut fields: Vec<_> = fields.iter().map(|t| t.0).collect();
        let n = count(&fields);
        // SAFETY: the handles are alive, and `fields` has `n` elements.
        self.ty(unsafe { core::LLVMStructTypeInContext(self.ctx(), fields.as_mut_ptr(), n, 0) })
    }

    pub fn function(&self, result: Ty<'c>, params: &[Ty<'c>]) -> Ty<'c> {
        let mut params: Vec<_> = params.iter().map(|t| t.0).collect();
        // SAFETY: the handles are alive, and `params` has as many elements as its count says.
        self.ty(unsafe { core::LLVMFunctionType(result.0, params.as_mut_ptr(), count(&params), 0) })
    }

    /// The low bits of `n`, in all lanes if the type is a vector.
    pub fn constant(&self, ty: Ty<'c>, n: i64) -> Val<'c> {
        self.in_all_lanes(ty, |elem| {
            // SAFETY: `elem` is an alive type of integers: callers ask for constants of no other.
            let bits = unsafe { core::LLVMGetIntTypeWidth(elem) };
            let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            // SAFETY: as above.
            unsafe { core::LLVMConstInt(elem, n.cast_unsigned() & mask, 0) }
        })
    }

    /// `x` rounded to the type, in all lanes if the type is a vector.
    pub fn real(&self, ty: Ty<'c>, x: f64) -> Val<'c> {
        // SAFETY: `elem` is an alive type of floating-point numbers: callers ask for reals of no other.
        self.in_all_lanes(ty, |elem| unsafe { core::LLVMConstReal(elem, x) })
    }

    fn in_all_lanes(&self, ty: Ty<'c>, one: impl FnOnce(LLVMTypeRef) -> LLVMValueRef) -> Val<'c> {
        match ty.lanes() {
            Some(n) => {
                let mut lanes = vec![one(ty.elem().0); n as usize];
                // SAFETY: `lanes` has `n` alive constants of one type.
                self.val(unsafe { core::LLVMConstVector(lanes.as_mut_ptr(), n) })
            }
            None => self.val(one(ty.0)),
        }
    }

    pub fn zero(&self, ty: Ty<'c>) -> Val<'c> {
        // SAFETY: the handles are alive.
        self.val(unsafe { core::LLVMConstNull(ty.0) })
    }

    /// A value that is never read.
    pub fn poison(&self, ty: Ty<'c>) -> Val<'c> {
        // SAFETY: the handles are alive.
        self.val(unsafe { core::LLVMGetPoison(ty.0) })
    }

    /// Adds a kernel. Attributes are pairs of name and value. The result is `None` if the name is
    /// already in use.
    pub fn kernel(&self, name: &str, params: &[Ty<'c>], attributes: &[(&str, &str)]) -> Option<Func<'c>> {
        const PTX_KERNEL: u32 = 71; // llvm::CallingConv::PTX_Kernel
        let f = self.declare(name, self.void(), params)?;
        // SAFETY: the function is alive.
        unsafe { core::LLVMSetFunctionCallConv(f.value.0, PTX_KERNEL) };
        for (key, value) in attributes {
            let (key, value) = (c_string(key), c_string(value));
            // SAFETY: the function is alive, and both texts end in NUL.
            unsafe { core::LLVMAddTargetDependentFunctionAttr(f.value.0, key.as_ptr(), value.as_ptr()) };
        }
        Some(f)
    }

    /// Declares a function that is defined elsewhere, or returns the earlier declaration. The
    /// result is `None` if the name is already in use for a variable, or for a function of another
    /// type.
    pub fn declare(&self, name: &str, result: Ty<'c>, params: &[Ty<'c>]) -> Option<Func<'c>> {
        let ty = self.function(result, params);
        let name = c_string(name);
        // SAFETY: the module is alive, and the name ends in NUL.
        let old = unsafe { core::LLVMGetNamedFunction(self.module(), name.as_ptr()) };
        let raw = if old.is_null() {
            // SAFETY: the module and the type are alive, and the name ends in NUL.
            unsafe { core::LLVMAddFunction(self.module(), name.as_ptr(), ty.0) }
        } else {
            old
        };
        // SAFETY: `raw` is a function of this module, which is alive. Types of a context are equal where their
        // addresses are.
        let same = unsafe { core::LLVMGlobalGetValueType(raw) } == ty.0;
        same.then(|| Func { value: self.val(raw), ty })
    }

    /// Declares a function of a library. Threads may have to meet in it, so LLVM must not put a
    /// branch around it. The result is `None` if the name is already in use.
    pub fn external(&self, name: &str, result: Ty<'c>, params: &[Ty<'c>]) -> Option<Func<'c>> {
        let f = self.declare(name, result, params)?;
        for name in [c"convergent", c"nounwind"] {
            self.attribute(f, inkwell::llvm_sys::LLVMAttributeFunctionIndex, name);
        }
        Some(f)
    }

    /// The parameters of a function.
    pub fn params(&self, f: Func<'c>) -> Vec<Val<'c>> {
        // SAFETY: the function is alive, and has a parameter of each index below its count.
        unsafe {
            let n = core::LLVMCountParams(f.value.0);
            (0..n).map(|index| self.val(core::LLVMGetParam(f.value.0, index))).collect()
        }
    }

    /// Declares that the address in a parameter is a multiple of `align`.
    pub fn align_param(&self, param: Val<'c>, align: u32) {
        // SAFETY: `param` is an alive parameter of a function, whose type is a pointer.
        unsafe { core::LLVMSetParamAlignment(param.0, align) };
    }

    /// Adds a variable of the module in an address space, with an initial value (poison for none).
    /// It is invisible to other modules.
    pub fn global(&self, name: &str, ty: Ty<'c>, space: u32, init: Val<'c>, align: u32) -> Val<'c> {
        let name = c_string(name);
        // SAFETY: the handles are alive, the first value has the type, and the name ends in NUL.
        unsafe {
            let g = core::LLVMAddGlobalInAddressSpace(self.module(), ty.0, name.as_ptr(), space);
            core::LLVMSetInitializer(g, init.0);
            core::LLVMSetLinkage(g, inkwell::llvm_sys::LLVMLinkage::LLVMInternalLinkage);
            core::LLVMSetAlignment(g, align);
            self.val(g)
        }
    }

    /// Adds a global that the launch provides.
    pub fn provided(&self, name: &str, ty: Ty<'c>, space: u32, align: u32) -> Val<'c> {
        let name = c_string(name);
        // SAFETY: the handles are alive, and the name ends in NUL.
        unsafe {
            let g = core::LLVMAddGlobalInAddressSpace(self.module(), ty.0, name.as_ptr(), space);
            core::LLVMSetLinkage(g, inkwell::llvm_sys::LLVMLinkage::LLVMExternalLinkage);
            core::LLVMSetAlignment(g, align);
            self.val(g)
        }
    }

    /// A constant of bytes.
    pub fn bytes(&self, bytes: &[u8]) -> Val<'c> {
        let (at, n) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the context is alive, and the bytes are lent with their length.
        self.val(unsafe { core::LLVMConstStringInContext2(self.ctx(), at, n, 1) })
    }
}

impl<'c> Ty<'c> {
    /// The number of lanes of a vector.
    pub fn lanes(self) -> Option<u32> {
        use inkwell::llvm_sys::LLVMTypeKind::LLVMVectorTypeKind;
        // SAFETY: the type is alive, and is a vector where its size is asked for.
        unsafe {
            (core::LLVMGetTypeKind(self.0) == LLVMVectorTypeKind).then(|| core::LLVMGetVectorSize(self.0))
        }
    }

    /// The type of one lane. That of a scalar is the scalar's type.
    pub fn elem(self) -> Ty<'c> {
        match self.lanes() {
            // SAFETY: the type is alive and a vector.
            Some(_) => Ty(unsafe { core::LLVMGetElementType(self.0) }, PhantomData),
            None => self,
        }
    }
}

impl<'c> Val<'c> {
    pub fn ty(self) -> Ty<'c> {
        // SAFETY: the value is alive.
        Ty(unsafe { core::LLVMTypeOf(self.0) }, PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_function_of_one_type() {
        let context = context().unwrap();
        let ir = Ir::new(&context);
        let (word, address) = (ir.int(32), ir.pointer(GENERIC));
        let first = ir.declare("f", word, &[address]).map(|f| f.value);
        assert!(first.is_some());
        assert_eq!(ir.declare("f", word, &[address]).map(|f| f.value), first);
        assert!(ir.declare("f", word, &[word]).is_none());
        assert!(ir.external("f", ir.void(), &[address]).is_none());
        assert!(ir.kernel("f", &[address], &[]).is_none());
    }
}
