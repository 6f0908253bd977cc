//! IR to text.

use super::Field;
use crate::kernel::{Block, Kernel, Module, ParamKind, Value};
use crate::op::Op;
use crate::types::Type;
use std::fmt::Write;

/// Writes one kernel.
pub struct Printer<'k> {
    pub(super) out: String,
    kernel: &'k Kernel,
    indent: usize,
    first: bool,
}

/// The text of a module: its kernels, in order.
pub fn print_module(module: &Module) -> String {
    module.kernels.iter().map(print_kernel).collect::<Vec<_>>().join("\n")
}

/// The text of a kernel.
pub fn print_kernel(kernel: &Kernel) -> String {
    let mut p = Printer { out: String::new(), kernel, indent: 1, first: true };
    p.kernel();
    p.out
}

impl Printer<'_> {
    fn kernel(&mut self) {
        let k = self.kernel;
        let [x, y, z] = k.block;
        self.put(format_args!("kernel @{} block({x}, {y}, {z})", k.name));
        if let Some([x, y, z]) = &k.grid {
            self.put(format_args!(" grid({{{x}}}, {{{y}}}, {{{z}}})"));
        }
        for param in &k.signaled {
            self.put(format_args!(" signaled({param})"));
        }
        self.put(format_args!(" {{\n"));
        // Scalars first: the layouts of the others are made of them.
        let order =
            |scalar| k.params.iter().enumerate().filter(move |(_, p)| (p.ty.lanes() == Some(1)) == scalar);
        for (i, p) in order(true).chain(order(false)) {
            self.put(format_args!("  param {i} {} : {}", p.name, p.ty));
            if p.div != 1 {
                self.put(format_args!(" % {}", p.div));
            }
            if let ParamKind::Hidden(hidden) = p.kind {
                let base = hidden.base().map(|base| format!("{base}, ")).unwrap_or_default();
                self.put(format_args!(" = {}({base}{})", hidden.name(), hidden.team()));
            }
            self.out.push('\n');
        }
        for (id, l) in k.locals.iter() {
            self.put(format_args!("  local {id} {} : {}\n", l.name, l.ty));
        }
        self.insts(&k.body);
        self.out.push_str("}\n");
    }

    fn insts(&mut self, block: &Block) {
        for &v in &block.0 {
            self.inst(v);
            self.out.push('\n');
        }
    }

    fn inst(&mut self, v: Value) {
        let kernel = self.kernel;
        let Some(inst) = kernel.insts.get(v) else { return };
        let pad = "  ".repeat(self.indent);
        self.out.push_str(&pad);
        self.put(format_args!("{v} = {}", inst.op.mnemonic()));
        self.first = true;
        inst.op.print_fields(self);
        if inst.ty != Type::Unit {
            self.put(format_args!(" : {}", inst.ty));
        }
    }

    /// Appends a field of the current op.
    pub(crate) fn field(&mut self, field: &impl Field) {
        self.out.push_str(if std::mem::take(&mut self.first) { " " } else { ", " });
        field.print(self);
        self.first = false;
    }

    pub(super) fn put(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(args);
    }

    /// A nested block, in braces. A loop's variable is printed where the loop names it.
    pub(super) fn block(&mut self, block: &Block) {
        self.out.push_str("{\n");
        self.indent += 1;
        self.insts(block);
        self.indent -= 1;
        self.out.push_str(&"  ".repeat(self.indent));
        self.out.push('}');
    }

    /// What is known of a loop's variable: least, greatest, divisor.
    pub(super) fn loop_var(&self, v: Value) -> (i64, i64, i64) {
        match self.kernel.insts.get(v).map(|i| &i.op) {
            Some(&Op::LoopVar { min, max, div }) => (min, max, div),
            _ => (i64::MIN, i64::MAX, 1),
        }
    }
}
