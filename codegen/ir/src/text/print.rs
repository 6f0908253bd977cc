//! Prints IR as text.

use super::Field;
use crate::diag::Span;
use crate::kernel::{Block, Kernel, Module, Value};
use crate::level::{Head, Level, Tensor};
use crate::op::{Operation, Var};
use crate::types::ValueType;
use std::fmt::Write;

/// Writes the text of one kernel.
pub struct Printer<'k, L: Level> {
    pub(super) out: String,
    kernel: &'k Kernel<L>,
    indent: usize,
    first: bool,
    /// The offsets at which lines begin, with the source text of the item there.
    marks: Vec<(usize, Span)>,
}

/// The text of a module: its kernels, in order.
pub fn print_module<L: Level>(module: &Module<L>) -> String {
    module.kernels.iter().map(print_kernel).collect::<Vec<_>>().join("\n")
}

/// The text of a kernel.
pub fn print_kernel<L: Level>(kernel: &Kernel<L>) -> String {
    print_kernel_lines(kernel).0
}

/// The text of a kernel, and for each of its lines the source text of the instruction or parameter
/// with which the line begins. It is [`Span::NONE`] for lines that begin with neither.
pub fn print_kernel_lines<L: Level>(kernel: &Kernel<L>) -> (String, Vec<Span>) {
    let mut p = Printer { out: String::new(), kernel, indent: 1, first: true, marks: Vec::new() };
    p.mark(kernel.span);
    p.kernel();
    let mut marks = p.marks.into_iter().peekable();
    let mut start = 0;
    let spans = p.out.split_inclusive('\n').map(|line| {
        let mark = marks.next_if(|(at, _)| *at == start);
        start += line.len();
        mark.map_or(Span::NONE, |(_, span)| span)
    });
    let spans = spans.collect();
    (p.out, spans)
}

impl<L: Level> Printer<'_, L> {
    fn kernel(&mut self) {
        let k = self.kernel;
        let [x, y, z] = k.block;
        if L::NAME != Tensor::NAME {
            self.put(format_args!("{} ", L::NAME));
        }
        self.put(format_args!("kernel @{} block({x}, {y}, {z})", k.name));
        if k.cluster != [1; 3] {
            let [x, y, z] = k.cluster;
            self.put(format_args!(" cluster({x}, {y}, {z})"));
        }
        k.head.print_attributes(self);
        self.put(format_args!(" {{\n"));
        k.head.print_params(self);
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
        self.mark(inst.span);
        let pad = "  ".repeat(self.indent);
        self.out.push_str(&pad);
        self.put(format_args!("{v} = {}", inst.op.mnemonic()));
        self.first = true;
        inst.op.print_fields(self);
        if inst.ty != L::Type::unit() {
            self.put(format_args!(" : {}", inst.ty));
        }
    }

    /// Appends a field of the current op.
    pub(crate) fn field(&mut self, field: &impl Field) {
        self.out.push_str(if std::mem::take(&mut self.first) { " " } else { ", " });
        field.print(self);
        self.first = false;
    }

    pub(crate) fn put(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(args);
    }

    /// Records the source text of the item that is printed next, at the beginning of a line.
    pub(crate) fn mark(&mut self, span: Span) {
        self.marks.push((self.out.len(), span));
    }

    /// Prints a nested block in braces. A loop's variable is printed by the loop that defines it.
    pub(super) fn block(&mut self, block: &Block) {
        self.out.push_str("{\n");
        self.indent += 1;
        self.insts(block);
        self.indent -= 1;
        self.out.push_str(&"  ".repeat(self.indent));
        self.out.push('}');
    }

    /// The known range of a loop's variable: the least value, the greatest value, and a divisor.
    pub(super) fn loop_var(&self, v: Value) -> (i64, i64, i64) {
        match self.kernel.insts.get(v).and_then(|i| i.op.var()) {
            Some(&Var::LoopVar { min, max, div }) => (min, max, div),
            Some(Var::Param { .. } | Var::LocalGet { .. } | Var::LocalSet { .. }) | None => {
                (i64::MIN, i64::MAX, 1)
            }
        }
    }
}
