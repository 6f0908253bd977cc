//! The lowering of a kernel to an LLVM function, with one file per family of ops.

mod arith;
mod bulk;
mod call;
mod control;
mod convert;
mod fp8;
mod matrix;
mod memory;
mod print;
mod switch;
mod threads;
mod tile;

use crate::codes::{BAD_NAME, LLVM_FAILED, TOO_MUCH_SHARED};
use crate::raw::{Func, Ir, Lines, SHARED, Ty, Val, address_space};
use crate::{Locate, Options, RequiredPtx};
use std::sync::Arc;
use weft_ir::abi::{
    EntryKind, MAP_ALIGN, MAP_BYTES, MAX_STATIC_SHARED, place_shared, shared_bytes, signature,
};
use weft_ir::arena::Handle;
use weft_ir::diag::Diagnostic;
use weft_ir::machine::{Inst, Kernel, Op, Type};
use weft_ir::{
    Address, Async, Block, Call, Constant, Control, Debug, Operation, Scalar, Value, ValueType, Var,
};
use weft_isa::Target;

/// Names that a kernel cannot have, because the device's runtime or LLVM defines them, or because
/// they have another meaning in PTX.
pub(crate) const TAKEN: &[&str] = &[print::VPRINTF, print::ASSERTFAIL, "__nvvm_reflect", "WARP_SZ", "_"];

/// The error for a kernel whose name is already in use.
pub(crate) fn unnameable(k: &Kernel) -> Diagnostic {
    Diagnostic::error(BAD_NAME, k.span, format!("`{}` cannot name a kernel here", k.name))
        .help(format!("give kernels different names, and do not use {}", TAKEN.join(", ")))
}

/// The result of a lowering.
type Lowered<T> = Result<T, Diagnostic>;

/// The state of the lowering of a kernel.
struct Lower<'a, 'c> {
    ir: &'a Ir<'c>,
    k: &'a Kernel,
    /// The source files of the module.
    files: &'a [Arc<str>],
    f: Func<'c>,
    target: Target,
    needs: &'a mut RequiredPtx,
    lines: Option<&'a mut Lines>,
    locate: Option<&'a Locate<'a>>,
    /// The values that the entry point gets, by parameter.
    params: Vec<Option<Val<'c>>>,
    /// The values that are computed already, by [`Value`].
    values: Vec<Option<Val<'c>>>,
    /// The local variables, by [`weft_ir::LocalId`].
    locals: Vec<Val<'c>>,
    /// The surrounding loops, and blocks that jumps can leave, outermost first.
    around: Vec<control::JumpTargets<'c>>,
    /// The current instruction.
    inst: &'a Inst,
    /// The number of bytes of shared memory that are allocated so far.
    shared_bytes: u64,
    /// The dynamic shared memory, if the kernel's tensors need more than variables can have.
    dynamic: Option<Val<'c>>,
    /// Whether the kernel has values of f16 and values of bf16.
    both_halves: bool,
    /// The number of globals so far.
    globals: u32,
    /// The role whose code is being lowered.
    role: Option<control::Role>,
    /// The number of roles so far.
    roles: u32,
    /// Whether only other roles follow the current instruction.
    last: bool,
    /// The matrix products that are not emitted yet.
    products: Option<matrix::Products<'c>>,
}

/// Lowers one kernel into the module.
pub(crate) fn kernel<'a, 'c>(
    ir: &'a Ir<'c>,
    (k, files): (&'a Kernel, &'a [Arc<str>]),
    options: &'a Options<'_>,
    needs: &'a mut RequiredPtx,
    mut lines: Option<&'a mut Lines>,
) -> Lowered<()> {
    let entry = signature(k)?;
    let types: Vec<_> = entry
        .iter()
        .map(|p| match p.kind {
            EntryKind::Address { .. } => ir.pointer(crate::raw::GLOBAL),
            EntryKind::Map => ir.pointer(crate::raw::GENERIC),
            EntryKind::Number(Scalar::Bool) => ir.int(8),
            EntryKind::Number(s) => ir.scalar(s),
        })
        .collect();
    let [x, y, z] = k.block;
    let block = format!("{x},{y},{z}");
    let [x, y, z] = k.cluster;
    let cluster = format!("{x},{y},{z}");
    let mut attributes = vec![("nvvm.reqntid", &*block)];
    if has_roles(k) {
        // Without this attribute, ptxas ignores changes of the registers of roles (C7508).
        attributes.push(("nvvm.minctasm", "1"));
    }
    if k.cluster_size() > 1 {
        attributes.push(("nvvm.cluster_dim", &*cluster));
    }
    let Some(f) = ir.kernel(&k.name, &types, &attributes) else {
        return Err(unnameable(k));
    };
    ir.go(ir.block(f, "entry"));
    if let Some(lines) = &mut lines {
        lines.enter(ir, f, &k.name, options.locate.and_then(|l| l(k.span)));
    }

    let mut params = vec![None; k.head.params.len()];
    for (at, (arg, p)) in (1u32..).zip(ir.params(f).into_iter().zip(&entry)) {
        params[p.index as usize] = Some(match p.kind {
            EntryKind::Address { align } => {
                ir.align_param(arg, align);
                arg
            }
            EntryKind::Map => {
                ir.by_value(f, at, MAP_BYTES, MAP_ALIGN);
                arg
            }
            EntryKind::Number(Scalar::Bool) => from_memory(ir, arg, Scalar::Bool),
            EntryKind::Number(_) => arg,
        });
    }
    let Some(inst) = k.body.0.first().and_then(|v| k.insts.get(*v)) else {
        ir.ret();
        return Ok(());
    };
    let values = vec![None; k.insts.len()];
    let mut lower = Lower {
        ir,
        k,
        files,
        f,
        target: options.target,
        needs,
        lines,
        locate: options.locate,
        params,
        values,
        locals: Vec::new(),
        around: Vec::new(),
        inst,
        shared_bytes: 0,
        dynamic: None,
        both_halves: [Scalar::F16, Scalar::BF16].iter().all(|s| has_values(k, *s)),
        globals: 0,
        role: None,
        roles: 0,
        last: true,
        products: None,
    };
    lower.find_dynamic()?;
    lower.declare_locals()?;
    lower.block(&k.body)?;
    ir.ret();
    if let Some(lines) = lower.lines {
        lines.leave(ir);
    }
    Ok(())
}

/// Whether the kernel has roles with registers of their own.
fn has_roles(k: &Kernel) -> bool {
    k.body.0.iter().any(|v| is_role(k, *v))
}

fn is_role(k: &Kernel, v: Value) -> bool {
    matches!(k.op(v).control(), Some(Control::Role { .. }))
}

/// Whether the kernel has values of an element type.
fn has_values(k: &Kernel, elem: Scalar) -> bool {
    k.insts.iter().any(|(_, inst)| inst.ty.elem() == Some(elem))
}

/// Converts an element from its form in memory to its form in registers.
fn from_memory<'c>(ir: &Ir<'c>, a: Val<'c>, s: Scalar) -> Val<'c> {
    match s {
        Scalar::Bool => ir.icmp(crate::raw::IntIs::LLVMIntNE, a, ir.zero(a.ty())),
        _ => a,
    }
}

impl<'c> Lower<'_, 'c> {
    fn block(&mut self, block: &Block) -> Lowered<()> {
        let last = self.last;
        for (i, &v) in block.0.iter().enumerate() {
            let inst = &self.k.insts[v];
            if !self.precedes_products(inst) {
                self.emit_products()?;
            }
            self.inst = inst;
            self.last = last && block.0[i + 1..].iter().all(|v| is_role(self.k, *v));
            if let (Some(lines), Some(locate)) = (&mut self.lines, self.locate)
                && !inst.span.is_none()
            {
                lines.at(self.ir, locate(inst.span));
            }
            self.values[v.index()] = self.op(inst)?;
            if let (Some(products), Op::Async(Async::Wgmma { .. } | Async::WgmmaWait { .. })) =
                (&mut self.products, &inst.op)
            {
                products.last = v;
            }
        }
        self.emit_products()?;
        self.last = last;
        Ok(())
    }

    fn op(&mut self, inst: &Inst) -> Lowered<Option<Val<'c>>> {
        match &inst.op {
            Op::Arith(op) => self.arithmetic(op).map(Some),
            Op::Thread(op) => self.threads(op),
            Op::Var(op) => self.var(op),
            Op::Control(op) => self.control(op).map(|()| None),
            Op::Address(op) => self.address(op).map(Some),
            Op::Memory(op) => self.memory(op),
            Op::Async(op) => self.tile(op),
            Op::Call(Call::Function { function, args }) => self.function(function, args),
            Op::Debug(Debug::Print { format, args }) => self.print(format, args).map(|()| None),
            Op::Debug(Debug::Assert { cond, text }) => self.assert(*cond, text).map(|()| None),
            Op::Debug(Debug::Trap {}) => self.intrinsic("llvm.trap", &[], &[]).map(|_| None),
        }
    }

    fn var(&mut self, op: &Var) -> Lowered<Option<Val<'c>>> {
        match op {
            Var::Param { index } => Ok(self.params.get(*index as usize).copied().flatten()),
            // A loop gives its variable a value.
            Var::LoopVar { .. } => Ok(None),
            Var::LocalGet { local } => {
                let ty = self.ty(&self.inst.ty)?;
                Ok(Some(self.ir.get(ty, self.locals[local.index()])))
            }
            Var::LocalSet { local, value } => {
                self.ir.set(self.val(*value)?, self.locals[local.index()]);
                Ok(None)
            }
        }
    }

    fn address(&mut self, op: &Address) -> Lowered<Val<'c>> {
        match op {
            Address::PtrAdd { ptr, bytes } => Ok(self.ir.offset(self.val(*ptr)?, self.val(*bytes)?)),
            Address::InCta { ptr, cta } => {
                self.intrinsic("llvm.nvvm.mapa.shared.cluster", &[], &[self.val(*ptr)?, self.val(*cta)?])
            }
            Address::FromInt { a } => {
                let to = self.ty(&self.inst.ty)?;
                Ok(self.ir.cast(crate::raw::Cast::LLVMIntToPtr, self.val(*a)?, to))
            }
            Address::ToInt { a } => {
                let to = self.ty(&self.inst.ty)?;
                Ok(self.ir.cast(crate::raw::Cast::LLVMPtrToInt, self.val(*a)?, to))
            }
            Address::Shared { name, bytes, align } => self.shared(name, *bytes, *align),
        }
    }

    /// A value that was computed before.
    fn val(&self, v: Value) -> Lowered<Val<'c>> {
        let known = self.values.get(v.index()).copied().flatten();
        known.ok_or_else(|| self.bug(&format!("{v} has no value")))
    }

    /// The element type of a number or vector.
    fn elem(&self, v: Value) -> Scalar {
        self.k.ty(v).elem().unwrap_or(Scalar::I32)
    }

    /// The LLVM type of a type of the IR in registers.
    fn ty(&self, ty: &Type) -> Lowered<Ty<'c>> {
        match ty {
            Type::Scalar(s) => Ok(self.ir.scalar(*s)),
            Type::Vector(s, n) => Ok(self.ir.vector(self.ir.scalar(*s), *n)),
            Type::Pointer(space) => Ok(self.ir.pointer(address_space(*space))),
            Type::Unit => Err(self.bug("a value of no type")),
        }
    }

    fn literal(&self, value: Constant) -> Lowered<Val<'c>> {
        let ty = self.ty(&self.inst.ty)?;
        Ok(match (value, self.inst.ty.elem()) {
            (Constant::Float(x), Some(s)) if s.is_fp8() => self.ir.constant(ty, i64::from(fp8::encode(s, x))),
            (Constant::Float(x), _) => self.ir.real(ty, x),
            (Constant::Int(n), _) => self.ir.constant(ty, n),
            (Constant::Bool(b), _) => self.ir.constant(ty, i64::from(b)),
        })
    }

    /// Declares dynamic shared memory if the kernel's tensors need more than variables can have
    /// together.
    fn find_dynamic(&mut self) -> Lowered<()> {
        /// The alignment that is sufficient for every swizzle.
        const ALIGN: u32 = 1024;
        let bytes = shared_bytes(self.k);
        let limit = u64::from(self.target.shared_limit());
        if bytes > limit {
            let message = format!("`{}` declares {bytes} bytes of shared memory", self.k.name);
            return Err(Diagnostic::error(TOO_MUCH_SHARED, self.k.span, message).help(format!(
                "a CTA can have {limit} bytes on {}: use smaller tiles or fewer stages",
                self.target
            )));
        }
        if bytes > MAX_STATIC_SHARED {
            let name = self.global_name("dynamic");
            let ty = self.ir.array(self.ir.int(8), 0);
            self.dynamic = Some(self.ir.provided(&name, ty, SHARED, ALIGN));
        }
        Ok(())
    }

    /// Memory of the CTA: a variable, or a part of the dynamic shared memory.
    fn shared(&mut self, name: &str, bytes: u64, align: u32) -> Lowered<Val<'c>> {
        let at = place_shared(self.shared_bytes, bytes, align).ok_or_else(|| self.bug("shared memory"))?;
        self.shared_bytes = at + bytes;
        if let Some(dynamic) = self.dynamic {
            let at = i64::try_from(at).map_err(|_| self.bug("shared memory"))?;
            return Ok(self.ir.offset(dynamic, self.ir.constant(self.ir.int(32), at)));
        }
        let ty = self.ir.array(self.ir.int(8), bytes);
        let word = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let name = self.global_name(if name.is_empty() || !word(name) { "shared" } else { name });
        Ok(self.ir.global(&name, ty, SHARED, self.ir.poison(ty), align))
    }

    /// A name for a global of this kernel. The `$` prevents a clash with names of kernels.
    fn global_name(&mut self, what: &str) -> String {
        self.globals += 1;
        format!("{}${what}{}", self.k.name, self.globals - 1)
    }

    /// Calls an intrinsic.
    fn intrinsic(&self, name: &str, types: &[Ty<'c>], args: &[Val<'c>]) -> Lowered<Val<'c>> {
        self.ir.intrinsic(name, types, args).ok_or_else(|| {
            let message = format!("this LLVM has no intrinsic `{name}`");
            Diagnostic::error(LLVM_FAILED, self.inst.span, message).help("use LLVM 22")
        })
    }

    fn error(&self, code: weft_ir::diag::Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.inst.span, message)
    }

    /// The error for something that the verifier should have found.
    fn bug(&self, what: &str) -> Diagnostic {
        self.error(LLVM_FAILED, format!("{what} (in `{}`)", self.inst.op.mnemonic()))
            .help("this is a bug of warpweft: please report it with the kernel's text")
    }
}
