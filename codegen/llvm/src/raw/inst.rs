//! Instructions on values, and control flow.

use super::{Bb, Func, Ir, Ty, Val, c_string, count};
use inkwell::llvm_sys::core;
use inkwell::llvm_sys::prelude::LLVMValueRef;
use std::ffi::CStr;
use std::marker::PhantomData;

pub(crate) use inkwell::llvm_sys::LLVMIntPredicate as IntIs;
pub(crate) use inkwell::llvm_sys::LLVMOpcode as Cast;
pub(crate) use inkwell::llvm_sys::LLVMRealPredicate as FloatIs;

/// The way in which an integer of fewer than 32 bits is passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ext {
    Sign,
    Zero,
}

/// LLVM gives numbers to values without names.
const UNNAMED: *const std::ffi::c_char = c"".as_ptr();

/// Declares one method per instruction.
macro_rules! instructions {
    ($($(#[$meta:meta])* $name:ident($($arg:ident),+) = $build:ident;)*) => {
        impl<'c> Ir<'c> {
            $($(#[$meta])* pub fn $name(&self, $($arg: Val<'c>),+) -> Val<'c> {
                // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
                self.val(unsafe { core::$build(self.builder.as_mut_ptr(), $($arg.0),+, UNNAMED) })
            })*
        }
    };
}

instructions! {
    add(a, b) = LLVMBuildAdd;
    sub(a, b) = LLVMBuildSub;
    mul(a, b) = LLVMBuildMul;
    /// Undefined if `b` is 0 or the quotient overflows.
    sdiv(a, b) = LLVMBuildSDiv;
    /// Undefined if `b` is 0.
    udiv(a, b) = LLVMBuildUDiv;
    /// Undefined if `b` is 0 or the quotient overflows.
    srem(a, b) = LLVMBuildSRem;
    /// Undefined if `b` is 0.
    urem(a, b) = LLVMBuildURem;
    and(a, b) = LLVMBuildAnd;
    or(a, b) = LLVMBuildOr;
    xor(a, b) = LLVMBuildXor;
    /// Poison if `b` is the width or more.
    shl(a, b) = LLVMBuildShl;
    /// Poison if `b` is the width or more.
    ashr(a, b) = LLVMBuildAShr;
    /// Poison if `b` is the width or more.
    lshr(a, b) = LLVMBuildLShr;
    not(a) = LLVMBuildNot;
    neg(a) = LLVMBuildNeg;
    fadd(a, b) = LLVMBuildFAdd;
    fsub(a, b) = LLVMBuildFSub;
    fmul(a, b) = LLVMBuildFMul;
    fdiv(a, b) = LLVMBuildFDiv;
    fneg(a) = LLVMBuildFNeg;
    select(c, a, b) = LLVMBuildSelect;
    extract_element(vector, lane) = LLVMBuildExtractElement;
    insert_element(vector, elem, lane) = LLVMBuildInsertElement;
}

impl<'c> Ir<'c> {
    fn at(&self) -> inkwell::llvm_sys::prelude::LLVMBuilderRef {
        self.builder.as_mut_ptr()
    }

    pub fn icmp(&self, is: IntIs, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        self.val(unsafe { core::LLVMBuildICmp(self.at(), is, a.0, b.0, UNNAMED) })
    }

    pub fn fcmp(&self, is: FloatIs, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        self.val(unsafe { core::LLVMBuildFCmp(self.at(), is, a.0, b.0, UNNAMED) })
    }

    /// Appends a cast. If `a` has the type already, the result is `a`.
    pub fn cast(&self, cast: Cast, a: Val<'c>, to: Ty<'c>) -> Val<'c> {
        if a.ty() == to {
            return a;
        }
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        self.val(unsafe { core::LLVMBuildCast(self.at(), cast, a.0, to.0, UNNAMED) })
    }

    pub fn bitcast(&self, a: Val<'c>, to: Ty<'c>) -> Val<'c> {
        self.cast(Cast::LLVMBitCast, a, to)
    }

    /// Appends `a + b`, which must not overflow as a sum of signed numbers.
    pub fn add_nsw(&self, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes.
        self.val(unsafe { core::LLVMBuildNSWAdd(self.at(), a.0, b.0, UNNAMED) })
    }

    /// Field `index` of a struct.
    pub fn field(&self, a: Val<'c>, index: u32) -> Val<'c> {
        // SAFETY: the handles are alive, and lowering passes the index of a field that the struct has.
        self.val(unsafe { core::LLVMBuildExtractValue(self.at(), a.0, index, UNNAMED) })
    }

    /// The lanes of a vector. The only lane of a scalar is the scalar itself.
    pub fn lanes(&self, a: Val<'c>) -> Vec<Val<'c>> {
        match a.ty().lanes() {
            Some(n) => (0..n).map(|i| self.lane(a, i)).collect(),
            None => vec![a],
        }
    }

    /// Appends the extraction of lane `i` of a vector.
    pub fn lane(&self, a: Val<'c>, i: u32) -> Val<'c> {
        self.extract_element(a, self.constant(self.int(32), i64::from(i)))
    }

    /// Appends a vector of scalars of one type.
    pub fn pack(&self, lanes: &[Val<'c>], ty: Ty<'c>) -> Val<'c> {
        let mut out = self.poison(ty);
        for (i, lane) in (0i64..).zip(lanes) {
            out = self.insert_element(out, *lane, self.constant(self.int(32), i));
        }
        out
    }

    /// Appends a vector with the lanes of `a` in the order of `mask`.
    pub fn shuffle(&self, a: Val<'c>, mask: &[u32]) -> Val<'c> {
        let index = self.int(32);
        let mut mask: Vec<_> = mask.iter().map(|i| self.constant(index, i64::from(*i)).0).collect();
        // SAFETY: the handles are alive, `mask` has as many elements as its count says, and each is a lane of `a`.
        unsafe {
            let mask = core::LLVMConstVector(mask.as_mut_ptr(), count(&mask));
            let none = core::LLVMGetPoison(core::LLVMTypeOf(a.0));
            self.val(core::LLVMBuildShuffleVector(self.at(), a.0, none, mask, UNNAMED))
        }
    }

    /// Appends a vector with `a` in every lane.
    pub fn splat(&self, a: Val<'c>, ty: Ty<'c>) -> Val<'c> {
        let one = self.insert_element(self.poison(ty), a, self.constant(self.int(32), 0));
        self.shuffle(one, &vec![0; ty.lanes().unwrap_or(1) as usize])
    }

    pub fn call(&self, f: Func<'c>, args: &[Val<'c>]) -> Val<'c> {
        let mut args: Vec<LLVMValueRef> = args.iter().map(|a| a.0).collect();
        let (at, n) = (args.as_mut_ptr(), count(&args));
        // SAFETY: the handles are alive, and `args` has `n` elements, which are what the type `f.ty` of the function
        // takes.
        self.val(unsafe { core::LLVMBuildCall2(self.at(), f.ty.0, f.value.0, at, n, UNNAMED) })
    }

    /// Gives a function, its result (0) or a parameter (from 1) an attribute that has no value.
    pub fn attribute(&self, f: Func<'c>, at: u32, name: &CStr) {
        // SAFETY: the handles are alive, the name is lent with its length, and `at` is the result or a parameter of
        // `f`.
        unsafe {
            let kind = core::LLVMGetEnumAttributeKindForName(name.as_ptr(), name.count_bytes());
            core::LLVMAddAttributeAtIndex(f.value.0, at, core::LLVMCreateEnumAttribute(self.ctx(), kind, 0));
        }
    }

    /// Declares that parameter `at` (from 1) of a kernel is passed by value. It has `bytes` bytes,
    /// which nothing writes, and its address can be taken (`__grid_constant__` of CUDA C++).
    pub fn by_value(&self, f: Func<'c>, at: u32, bytes: u32, align: u32) {
        let ty = self.array(self.int(8), bytes.into());
        let (byval, aligned) = (c"byval", c"align");
        // SAFETY: the handles are alive, the names are lent with their lengths, and `at` is a parameter of `f`.
        unsafe {
            let kind = core::LLVMGetEnumAttributeKindForName(byval.as_ptr(), byval.count_bytes());
            core::LLVMAddAttributeAtIndex(
                f.value.0,
                at,
                core::LLVMCreateTypeAttribute(self.ctx(), kind, ty.0),
            );
            let kind = core::LLVMGetEnumAttributeKindForName(aligned.as_ptr(), aligned.count_bytes());
            let align = core::LLVMCreateEnumAttribute(self.ctx(), kind, align.into());
            core::LLVMAddAttributeAtIndex(f.value.0, at, align);
            let (key, value) = (c"nvvm.grid_constant", c"");
            let (key, n) = (key.as_ptr(), key.count_bytes() as u32);
            let constant = core::LLVMCreateStringAttribute(self.ctx(), key, n, value.as_ptr(), 0);
            core::LLVMAddAttributeAtIndex(f.value.0, at, constant);
        }
    }

    /// Declares how the result (0) or a parameter (from 1) is extended to the width of a register.
    pub fn extend(&self, f: Func<'c>, at: u32, ext: Option<Ext>) {
        match ext {
            Some(Ext::Sign) => self.attribute(f, at, c"signext"),
            Some(Ext::Zero) => self.attribute(f, at, c"zeroext"),
            None => {}
        }
    }

    /// Calls an intrinsic that is overloaded on `types`. The result is `None` if this LLVM has no
    /// intrinsic with that name.
    pub fn intrinsic(&self, name: &str, types: &[Ty<'c>], args: &[Val<'c>]) -> Option<Val<'c>> {
        let mut types: Vec<_> = types.iter().map(|t| t.0).collect();
        // SAFETY: the handles are alive. The name and the types are lent with their lengths; lowering passes the
        // types that the intrinsic is overloaded on.
        let f = unsafe {
            let id = core::LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            if id == 0 {
                return None;
            }
            let value = core::LLVMGetIntrinsicDeclaration(self.module(), id, types.as_mut_ptr(), types.len());
            let ty = core::LLVMIntrinsicGetType(self.ctx(), id, types.as_mut_ptr(), types.len());
            Func { value: self.val(value), ty: self.ty(ty) }
        };
        Some(self.call(f, args))
    }

    /// Permits a call of a function to return PTX's approximation.
    pub fn may_approximate(&self, call: Val<'c>) {
        // SAFETY: the call is an alive instruction that gives a floating-point number.
        unsafe { core::LLVMSetFastMathFlags(call.0, inkwell::llvm_sys::LLVMFastMathApproxFunc) };
    }

    /// Declares that the result of a call is in `lo..hi`.
    pub fn in_range(&self, call: Val<'c>, bits: u32, lo: u64, hi: u64) {
        const RETURN: u32 = 0;
        // SAFETY: the call is alive, the name has five characters, and both limits are of one word, as `bits` of at
        // most 64 says.
        unsafe {
            let kind = core::LLVMGetEnumAttributeKindForName(c"range".as_ptr(), 5);
            let range = core::LLVMCreateConstantRangeAttribute(self.ctx(), kind, bits, &lo, &hi);
            core::LLVMAddCallSiteAttribute(call.0, RETURN, range);
        }
    }

    /// Appends inline assembly that is not moved. Several results are returned as a struct.
    pub fn asm(&self, text: &str, constraints: &str, results: &[Ty<'c>], args: &[Val<'c>]) -> Val<'c> {
        let result = match results {
            [] => self.void(),
            [one] => *one,
            _ => self.structure(results),
        };
        let params: Vec<_> = args.iter().map(|a| a.ty()).collect();
        let ty = self.function(result, &params);
        let dialect = inkwell::llvm_sys::LLVMInlineAsmDialect::LLVMInlineAsmDialectATT;
        // SAFETY: the type is alive and a function's, and both texts are lent with their lengths.
        let value = unsafe {
            let (text, constraints) =
                ((text.as_ptr().cast(), text.len()), (constraints.as_ptr().cast(), constraints.len()));
            core::LLVMGetInlineAsm(ty.0, text.0, text.1, constraints.0, constraints.1, 1, 0, dialect, 0)
        };
        self.call(Func { value: self.val(value), ty }, args)
    }

    pub fn block(&self, f: Func<'c>, name: &str) -> Bb<'c> {
        let name = c_string(name);
        // SAFETY: the handles are alive, and the name ends in NUL.
        Bb(unsafe { core::LLVMAppendBasicBlockInContext(self.ctx(), f.value.0, name.as_ptr()) }, PhantomData)
    }

    /// Moves the builder to the end of a block.
    pub fn go(&self, block: Bb<'c>) {
        // SAFETY: the handles are alive.
        unsafe { core::LLVMPositionBuilderAtEnd(self.at(), block.0) };
    }

    /// The block to which instructions are added.
    pub fn here(&self) -> Bb<'c> {
        // SAFETY: the builder is alive and stands in a block, since lowering begins with `go`.
        Bb(unsafe { core::LLVMGetInsertBlock(self.at()) }, PhantomData)
    }

    pub fn jump(&self, to: Bb<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the block is of the same function.
        self.val(unsafe { core::LLVMBuildBr(self.at(), to.0) })
    }

    pub fn branch(&self, cond: Val<'c>, then: Bb<'c>, otherwise: Bb<'c>) -> Val<'c> {
        // SAFETY: the handles are alive, and the operands have the types that the instruction takes; the blocks are
        // of the same function.
        self.val(unsafe { core::LLVMBuildCondBr(self.at(), cond.0, then.0, otherwise.0) })
    }

    pub fn ret(&self) {
        // SAFETY: the builder is alive, and kernels return nothing.
        unsafe { core::LLVMBuildRetVoid(self.at()) };
    }

    /// Appends a phi without incoming values.
    pub fn phi(&self, ty: Ty<'c>) -> Val<'c> {
        // SAFETY: the handles are alive.
        self.val(unsafe { core::LLVMBuildPhi(self.at(), ty.0, UNNAMED) })
    }

    /// Sets the value of a phi for control that comes from `block`.
    pub fn incoming(&self, phi: Val<'c>, value: Val<'c>, block: Bb<'c>) {
        let (mut value, mut block) = (value.0, block.0);
        // SAFETY: the handles are alive, `phi` is a phi, and LLVM reads one element of each array.
        unsafe { core::LLVMAddIncoming(phi.0, &mut value, &mut block, 1) };
    }

    /// Marks the branch back to a loop's head with the unroll factor (1 does not unroll, and 0
    /// unrolls completely).
    pub fn unroll(&self, latch: Val<'c>, rounds: u32) {
        use inkwell::llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
        let ctx = self.ctx();
        // SAFETY: the context is alive, and the text is lent with its length.
        let string = |s: &str| unsafe { core::LLVMMDStringInContext2(ctx, s.as_ptr().cast(), s.len()) };
        // SAFETY: the context and the items are alive, and the slice is lent with its length.
        let node = |items: &mut [inkwell::llvm_sys::prelude::LLVMMetadataRef]| unsafe {
            core::LLVMMDNodeInContext2(ctx, items.as_mut_ptr(), items.len())
        };
        let hint = match rounds {
            0 => node(&mut [string("llvm.loop.unroll.full")]),
            1 => node(&mut [string("llvm.loop.unroll.disable")]),
            n => {
                let n = self.constant(self.int(32), i64::from(n));
                // SAFETY: the constant is alive.
                let n = unsafe { core::LLVMValueAsMetadata(n.0) };
                node(&mut [string("llvm.loop.unroll.count"), n])
            }
        };
        // SAFETY: the branch and all metadata are alive and of one context; the temporary node is gone once it is
        // replaced, and nothing uses it after that.
        unsafe {
            // The node of a loop refers to itself first, which distinguishes it from others.
            let own = LLVMTemporaryMDNode(ctx, std::ptr::null_mut(), 0);
            let id = node(&mut [own, hint]);
            LLVMMetadataReplaceAllUsesWith(own, id);
            let kind = core::LLVMGetMDKindIDInContext(ctx, c"llvm.loop".as_ptr(), 9);
            core::LLVMSetMetadata(latch.0, kind, core::LLVMMetadataAsValue(ctx, id));
        }
    }
}
