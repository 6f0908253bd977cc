//! The lowering of calls of device libraries' functions.

use super::{Lower, Lowered};
use crate::codes::BAD_NAME;
use crate::raw::{Cast, Ext, GENERIC, Ty, Val};
use weft_ir::machine::Type;
use weft_ir::names::NumberKind;
use weft_ir::{Value, ValueType};

impl<'c> Lower<'_, 'c> {
    /// Calls a function of another module with the conventions of clang's C: addresses are generic,
    /// and integers below 32 bits are extended.
    pub(super) fn function(&mut self, name: &str, args: &[Value]) -> Lowered<Option<Val<'c>>> {
        let (ir, result) = (self.ir, &self.inst.ty);
        if super::TAKEN.contains(&name) {
            return Err(self.error(
                BAD_NAME,
                format!("`{name}` cannot be called, because it is not a function of a library"),
            ));
        }
        let types = args.iter().map(|a| self.passed(self.k.ty(*a))).collect::<Lowered<Vec<_>>>()?;
        let returned = if *result == Type::Unit { ir.void() } else { self.passed(result)? };
        let f = ir.external(name, returned, &types).ok_or_else(|| {
            let message =
                format!("`{name}` cannot be called here, because the module has another item with that name");
            self.error(BAD_NAME, message).help("all calls of a function must pass and return the same types")
        })?;
        ir.extend(f, 0, extension(result));
        let mut passed = Vec::with_capacity(args.len());
        for ((at, arg), ty) in (1..).zip(args).zip(types) {
            ir.extend(f, at, extension(self.k.ty(*arg)));
            passed.push(ir.cast(Cast::LLVMAddrSpaceCast, self.val(*arg)?, ty));
        }
        let found = ir.call(f, &passed);
        match result {
            Type::Unit => Ok(None),
            ty => Ok(Some(ir.cast(Cast::LLVMAddrSpaceCast, found, self.ty(ty)?))),
        }
    }

    /// The type that a function takes or returns for a type of the IR.
    fn passed(&self, ty: &Type) -> Lowered<Ty<'c>> {
        match ty {
            Type::Pointer(_) => Ok(self.ir.pointer(GENERIC)),
            _ => self.ty(ty),
        }
    }
}

/// The way in which C extends a number to a register of 32 bits.
fn extension(ty: &Type) -> Option<Ext> {
    let s = ty.elem().filter(|s| s.is_int() && s.bits() < 32)?;
    Some(if s.kind() == NumberKind::Signed { Ext::Sign } else { Ext::Zero })
}
