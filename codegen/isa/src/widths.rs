//! Which accesses an instruction has for an element type, widest first.

use crate::check::{Legal, find};
use crate::form::Form;
use crate::table::{Carrier, tables};
use crate::target::Target;
use crate::words::{ElemType, Reg};

/// One way to access consecutive elements.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    /// The instruction that makes the access.
    pub legal: Legal,
    /// Elements of the type asked for that one access moves.
    pub elements: u32,
    /// Bytes that one access moves; its address must be a multiple of it.
    pub bytes: u32,
    /// Why the instruction's type may differ from the one asked for: another one carries its bits.
    pub carried: Option<&'static str>,
}

impl Carrier {
    /// Whether it speaks of such a form.
    pub(crate) fn carries(&self, form: &Form) -> bool {
        self.instrs.contains(&form.instr)
            && self.ops.contains(&form.op)
            && self.types.contains(&form.ty)
            && self.sems.contains(&form.sem)
    }
}

/// Every access width that `target` has for `want`, whose `ty` is the scalar element type and whose `vec` is not
/// read: one form a width, from the widest (16 bytes) to the narrowest. Of several forms of one width the
/// element's own type goes before a carrier (`carriers.table`), then the one with the fewest registers; forms
/// over `.b8` registers are left out. Empty where the target has none.
///
/// The narrowest may hold more than one element (f16: two): a shorter tail has no instruction of this kind.
pub fn widths(want: &Form, target: Target) -> Vec<Width> {
    let own = ElemType::ALL.iter().filter(|ty| ty.scalar() == want.ty.scalar()).map(|ty| (*ty, None));
    let carriers = tables().carriers.iter().filter(|carrier| carrier.carries(want));
    let carried = carriers.flat_map(|carrier| carrier.by.iter().map(|ty| (*ty, Some(carrier.why))));
    let candidates: Vec<_> = own.chain(carried).collect();

    let mut found: Vec<Width> = Vec::new();
    for (ty, why) in candidates {
        for vec in [1, 2, 4, 8] {
            let form = Form { ty, vec, ..*want };
            let (bytes, element) = (form.bytes(), u32::from(want.ty.scalar().bytes()));
            if ty.reg() == Reg::B8 || bytes % element != 0 {
                continue;
            }
            let Some(legal) = find(&form, target) else { continue };
            let width = Width { legal, elements: bytes / element, bytes, carried: why };
            match found.iter_mut().find(|other| other.bytes == bytes) {
                None => found.push(width),
                Some(other) if rank(&width) < rank(other) => *other = width,
                Some(_) => {}
            }
        }
    }
    found.sort_by_key(|width| std::cmp::Reverse(width.bytes));
    found
}

/// Less is better.
fn rank(width: &Width) -> (bool, u8) {
    (width.carried.is_some(), width.legal.form().vec)
}
