//! From a kernel to an LLVM function, one file a family of ops.

mod arith;
mod call;
mod control;
mod convert;
mod fp8;
mod memory;
mod print;
mod switch;
mod threads;

use crate::codes::{LLVM_FAILED, NOT_MACHINE, TOO_MUCH_SHARED};
use crate::raw::{Func, Ir, Lines, SHARED, Ty, Val, address_space};
use crate::{Locate, Needs, Options};
use weft_ir::abi::{EntryKind, signature};
use weft_ir::arena::Handle;
use weft_ir::diag::Diagnostic;
use weft_ir::typing::MAX_LANES;
use weft_ir::{Block, Constant, Inst, Kernel, Op, Scalar, Space, Type, Value};
use weft_isa::Target;

/// Names that a kernel cannot have: what the device's runtime or LLVM defines, and what PTX reads as something else.
pub(crate) const TAKEN: &[&str] = &[print::VPRINTF, "__nvvm_reflect", "WARP_SZ", "_"];

/// What a lowering gives.
type Lowered<T> = Result<T, Diagnostic>;

/// A kernel being lowered.
struct Lower<'a, 'c> {
    ir: &'a Ir<'c>,
    k: &'a Kernel,
    f: Func<'c>,
    target: Target,
    needs: &'a mut Needs,
    lines: Option<&'a mut Lines>,
    locate: Option<&'a Locate<'a>>,
    /// By [`Value`], once computed.
    values: Vec<Option<Val<'c>>>,
    /// By [`weft_ir::LocalId`].
    locals: Vec<Val<'c>>,
    /// The instruction at hand.
    inst: &'a Inst,
    shared_bytes: u64,
    /// Globals made so far.
    globals: u32,
}

/// Lowers one kernel into the module.
pub(crate) fn kernel<'a, 'c>(
    ir: &'a Ir<'c>,
    k: &'a Kernel,
    options: &'a Options<'_>,
    needs: &'a mut Needs,
    mut lines: Option<&'a mut Lines>,
) -> Lowered<()> {
    let entry = signature(k)?;
    let types: Vec<_> = entry
        .iter()
        .map(|p| match p.kind {
            EntryKind::Address { .. } => ir.pointer(crate::raw::GLOBAL),
            EntryKind::Number(Scalar::Bool) => ir.int(8),
            EntryKind::Number(s) => ir.scalar(s),
        })
        .collect();
    let [x, y, z] = k.block;
    let f = ir.kernel(&k.name, &types, &[("nvvm.reqntid", &format!("{x},{y},{z}"))]);
    ir.go(ir.block(f, "entry"));
    if let Some(lines) = &mut lines {
        lines.enter(ir, f, &k.name, options.locate.and_then(|l| l(k.span)));
    }

    let mut params = vec![None; k.params.len()];
    for (at, p) in (0u32..).zip(&entry) {
        let arg = ir.param(f, at);
        params[p.index as usize] = Some(match p.kind {
            EntryKind::Address { align } => {
                ir.align_param(f, at, align);
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
    let locate = options.locate;
    let target = options.target;
    let (locals, shared_bytes, globals) = (Vec::new(), 0, 0);
    let mut lower =
        Lower { ir, k, f, target, needs, lines, locate, values, locals, inst, shared_bytes, globals };
    // Parameters first, wherever they stand: a tensor's type may be made of any of them.
    for (v, inst) in k.insts.iter() {
        if let Op::Param { index } = inst.op {
            lower.values[v.index()] = params.get(index as usize).copied().flatten();
        }
    }
    lower.declare_locals()?;
    lower.block(&k.body)?;
    ir.ret();
    if let Some(lines) = lower.lines {
        lines.leave(ir);
    }
    Ok(())
}

/// An element as it lies in memory, to one in registers.
fn from_memory<'c>(ir: &Ir<'c>, a: Val<'c>, s: Scalar) -> Val<'c> {
    match s {
        Scalar::Bool => ir.icmp(crate::raw::IntIs::LLVMIntNE, a, ir.zero(a.ty())),
        _ => a,
    }
}

impl<'c> Lower<'_, 'c> {
    fn block(&mut self, block: &Block) -> Lowered<()> {
        for &v in &block.0 {
            let inst = &self.k.insts[v];
            self.inst = inst;
            if let (Some(lines), Some(locate)) = (&mut self.lines, self.locate)
                && !inst.span.is_none()
            {
                lines.at(self.ir, locate(inst.span));
            }
            self.values[v.index()] = self.op(v, inst)?;
        }
        Ok(())
    }

    fn op(&mut self, v: Value, inst: &Inst) -> Lowered<Option<Val<'c>>> {
        match &inst.op {
            Op::Const { value } => self.literal(*value).map(Some),
            Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Fma { .. }
            | Op::Compare { .. }
            | Op::Select { .. } => self.arithmetic(&inst.op).map(Some),
            Op::Convert { .. }
            | Op::Bitcast { .. }
            | Op::Splat { .. }
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::Extract { .. }
            | Op::Insert { .. } => self.reshape(&inst.op).map(Some),
            Op::Param { .. } => Ok(self.values[v.index()]),
            Op::SharedAlloc { name } => self.shared(name).map(Some),
            Op::PtrAdd { ptr, bytes } => Ok(Some(self.ir.offset(self.address(*ptr)?, self.val(*bytes)?))),
            Op::IntToPtr { a } => {
                let to = self.ty(&inst.ty)?;
                Ok(Some(self.ir.cast(crate::raw::Cast::LLVMIntToPtr, self.val(*a)?, to)))
            }
            Op::Load { .. }
            | Op::Store { .. }
            | Op::Red { .. }
            | Op::Atomic { .. }
            | Op::AtomicCas { .. } => self.memory(&inst.op),
            Op::LdReduce { .. } | Op::McStore { .. } | Op::McRed { .. } => self.switch(&inst.op),
            Op::Special { .. } | Op::Shuffle { .. } | Op::GroupBarrier { .. } | Op::Fence { .. } => {
                self.threads(&inst.op)
            }
            Op::If { .. } | Op::For { .. } | Op::While { .. } | Op::LocalGet { .. } | Op::LocalSet { .. } => {
                self.control(&inst.op)
            }
            Op::Call { function, args } => self.function(function, args),
            Op::Print { format, args } => self.print(format, args).map(|()| None),
            // It says where threads must meet, which has been checked.
            Op::Converge { .. } => Ok(None),
            Op::Trap {} => self.intrinsic("llvm.trap", &[], &[]).map(|_| None),
            // Tensors, teams, reductions, remote operations: the passes leave none.
            _ => Err(self.not_machine(inst.op.mnemonic())),
        }
    }

    /// A value computed before.
    fn val(&self, v: Value) -> Lowered<Val<'c>> {
        let known = self.values.get(v.index()).copied().flatten();
        known.ok_or_else(|| self.not_machine(&format!("a use of {v}, a {}", self.k.ty(v))))
    }

    /// The element type of a value.
    fn elem(&self, v: Value) -> Lowered<Scalar> {
        match self.k.ty(v) {
            Type::Scalar(s) | Type::Vector(s, _) => Ok(*s),
            other => Err(self.not_machine(&format!("arithmetic on a {other}"))),
        }
    }

    /// A type in registers.
    fn ty(&self, ty: &Type) -> Lowered<Ty<'c>> {
        match ty {
            Type::Scalar(s) => Ok(self.ir.scalar(*s)),
            Type::Vector(s, n) if (1..=MAX_LANES).contains(n) => Ok(self.ir.vector(self.ir.scalar(*s), *n)),
            Type::Pointer(space) if *space != Space::Register => Ok(self.ir.pointer(address_space(*space))),
            other => Err(self.not_machine(&format!("a {other}"))),
        }
    }

    /// An address: a pointer, or what a tensor parameter or shared tensor begins at.
    fn address(&self, v: Value) -> Lowered<Val<'c>> {
        let at = self.val(v)?;
        if at.ty().is_pointer() { Ok(at) } else { Err(self.not_machine("an address that is no pointer")) }
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

    /// A variable of the CTA.
    fn shared(&mut self, name: &str) -> Lowered<Val<'c>> {
        /// What `.shared` variables of one kernel may take together (CUDA's static limit).
        const LIMIT: u64 = 48 * 1024;
        let Type::Tensor(t) = &self.inst.ty else {
            return Err(self.not_machine(&format!("a shared {}", self.inst.ty)));
        };
        let elements = t.layout.cosize().as_const().and_then(|n| u64::try_from(n).ok());
        let bytes = elements.and_then(|n| n.checked_mul(u64::from(t.elem.bytes())));
        let align = t.align.max(t.elem.bytes());
        let total =
            bytes.and_then(|b| self.shared_bytes.checked_next_multiple_of(align.into())?.checked_add(b));
        let Some((bytes, total)) = bytes.zip(total).filter(|(_, total)| *total <= LIMIT) else {
            let size = total.map_or("too many".into(), |n| n.to_string());
            let message = format!("`{}` declares {size} bytes of shared memory", self.k.name);
            return Err(Diagnostic::error(TOO_MUCH_SHARED, self.inst.span, message)
                .help(format!("a kernel declares at most {LIMIT} bytes: use smaller tiles")));
        };
        self.shared_bytes = total;
        let ty = self.ir.array(self.ir.int(8), bytes);
        let word = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let name = self.global_name(if name.is_empty() || !word(name) { "shared" } else { name });
        Ok(self.ir.global(&name, ty, SHARED, self.ir.poison(ty), align))
    }

    /// A name for a global of this kernel's: `$` keeps it apart from kernels' own.
    fn global_name(&mut self, what: &str) -> String {
        self.globals += 1;
        format!("{}${what}{}", self.k.name, self.globals - 1)
    }

    /// Calls an intrinsic.
    fn intrinsic(&self, name: &str, types: &[Ty<'c>], args: &[Val<'c>]) -> Lowered<Val<'c>> {
        self.ir.intrinsic(name, types, args).ok_or_else(|| {
            let message = format!("this LLVM has no intrinsic `{name}`");
            Diagnostic::error(LLVM_FAILED, self.inst.span, message)
                .help("build with the LLVM that the README names")
        })
    }

    fn error(&self, code: weft_ir::diag::Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.inst.span, message)
    }

    fn not_machine(&self, what: &str) -> Diagnostic {
        self.error(NOT_MACHINE, format!("{what} cannot be lowered to PTX (in `{}`)", self.inst.op.mnemonic()))
            .help("run the passes first; in a kernel compiled from text this is a bug of warpweft: please report it")
    }
}
