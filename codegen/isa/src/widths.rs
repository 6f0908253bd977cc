//! The accesses that an instruction has for an element type, widest first.

use crate::check::{Legal, find};
use crate::form::Form;
use crate::table::{Carrier, tables};
use crate::target::Target;
use crate::words::{ElemType, Reg};

/// An access to consecutive elements.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    /// The instruction that makes the access.
    pub legal: Legal,
    /// The number of elements of the requested type that one access moves.
    pub elements: u32,
    /// The number of bytes that one access moves. Its address must be a multiple of it.
    pub bytes: u32,
    /// The reason why the instruction can have another type than the requested one: that type
    /// carries its bits.
    pub carried: Option<&'static str>,
}

impl Carrier {
    /// Whether the carrier applies to such a form.
    pub(crate) fn carries(&self, form: &Form) -> bool {
        self.instrs.contains(&form.instr)
            && self.ops.contains(&form.op)
            && self.types.contains(&form.ty)
            && self.sems.contains(&form.sem)
    }
}

/// Every access width that `target` has for `want`. The `ty` of `want` is the scalar element type,
/// and its `vec` is ignored. There is one form per width, from the widest (16 bytes) to the
/// narrowest. Among several forms of one width the element's own type is preferred to a carrier
/// (`carriers.table`), and after that the form with the fewest registers. Forms over `.b8`
/// registers are left out. The result is empty if the target has none.
///
/// The narrowest form can hold more than one element (two for f16). There is no instruction of this
/// kind for a shorter tail.
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

/// The preference of a width. Lower values are better.
fn rank(width: &Width) -> (bool, u8) {
    (width.carried.is_some(), width.legal.form().vec)
}
