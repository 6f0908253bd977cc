//! Matrix instructions of warpgroups (PTX ISA, Asynchronous Warpgroup Level Matrix Instructions).
//!
//! LLVM has no intrinsic for `wgmma.mma_async`. Each is inline assembly that takes and gives back every accumulator
//! register that it adds to, and so is the wait: no use of an accumulator can then move above the wait, and none lies
//! between instructions of a group, which would make ptxas run them one after the other.

use super::{Lower, Lowered};
use crate::raw::Val;
use weft_ir::{Async, Scalar, Value, ValueType};

impl<'c> Lower<'_, 'c> {
    pub(super) fn matrix(&self, op: &Async) -> Lowered<Option<Val<'c>>> {
        match op {
            Async::WgmmaFence {} => self.effect("llvm.nvvm.wgmma.fence.sync.aligned", &[]),
            Async::WgmmaCommit {} => self.effect("llvm.nvvm.wgmma.commit_group.sync.aligned", &[]),
            Async::WgmmaWait { acc, pending } => {
                let lanes = self.k.ty(*acc).lanes().unwrap_or(0);
                let text = format!("wgmma.wait_group.sync.aligned {pending};");
                self.tied(*acc, (0, lanes), &text, &[], "").map(Some)
            }
            Async::Wgmma { acc, first, a, b, n, a_elem, b_elem, a_mn, b_mn } => {
                let sum = self.k.ty(*acc).elem().unwrap_or(Scalar::F32);
                let lanes = n / 2;
                let (k, rest) = match a_elem.bytes() {
                    2 => (16, format!(", 1, 1, {}, {}", u8::from(*a_mn), u8::from(*b_mn))),
                    4 => (8, ", 1, 1".into()),
                    _ if a_elem.is_float() => (32, ", 1, 1".into()),
                    _ => (32, String::new()),
                };
                let registers: Vec<_> = (0..lanes).map(|i| format!("${i}")).collect();
                let text = format!(
                    "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{}.{}.{} {{{}}}, ${}, ${}, 1{rest};",
                    if sum == Scalar::F32 { "f32" } else { "s32" },
                    name(*a_elem),
                    name(*b_elem),
                    registers.join(", "),
                    2 * lanes,
                    2 * lanes + 1,
                );
                let descriptors = [self.val(*a)?, self.val(*b)?];
                self.tied(*acc, (*first, lanes), &text, &descriptors, ",l,l").map(Some)
            }
            _ => Err(self.bug("no matrix instruction")),
        }
    }

    /// Assembly that takes lanes `first..first + n` of a vector and gives them back, with `more` operands behind.
    fn tied(
        &self,
        acc: Value,
        (first, n): (u32, u32),
        text: &str,
        more: &[Val<'c>],
        constraints: &str,
    ) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let elem = self.k.ty(acc).elem().unwrap_or(Scalar::F32);
        let mut lanes = ir.lanes(self.val(acc)?);
        let ty = self.val(acc)?.ty();
        let own = first as usize..(first + n) as usize;
        let Some(tied) = lanes.get(own.clone()).map(<[_]>::to_vec) else {
            return Err(self.bug("registers that an accumulator does not have"));
        };
        let register = if elem == Scalar::F32 { "=f" } else { "=r" };
        let mut all = vec![register.to_owned(); n as usize];
        all.extend((0..n).map(|i| i.to_string()));
        let constraints = format!("{}{constraints}", all.join(","));
        let results = vec![ir.scalar(elem); n as usize];
        let args: Vec<_> = tied.iter().chain(more).copied().collect();
        let out = ir.asm(text, &constraints, &results, &args);
        for (i, at) in (0u32..).zip(own) {
            lanes[at] = if n == 1 { out } else { ir.field(out, i) };
        }
        Ok(ir.pack(&lanes, ty))
    }
}

/// An element type as matrix instructions call it.
fn name(s: Scalar) -> &'static str {
    match s {
        Scalar::I8 => "s8",
        Scalar::U8 => "u8",
        // Multiplied with 10 bits of mantissa.
        Scalar::F32 => "tf32",
        other => other.name(),
    }
}
