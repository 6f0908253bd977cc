//! A row builder's view of an instruction: its modifiers by name, and its operands resolved and
//! type-checked.

use super::{Picks, lift};
use crate::builder::{Entity, FunctionBuilder, Width};
pub(crate) use crate::builder::{Issue, issue};
use crate::codes;
use crate::exec::access::Space;
use crate::exec::{Context, Op, Pred, PredSrc, Reg, Src};
use crate::num::{F32, F64, Rounding, mask};
use crate::order::{Order, Scope};
use crate::ptx::ast::{Base, Number, Operand};
use crate::types::{Ty, TypeKind};

/// An address operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    base: AddressBase,
    offset: u64,
}

#[derive(Debug, Clone, Copy)]
enum AddressBase {
    Value(Src),
    /// The variables of the frame in local memory.
    Frame,
}

impl Address {
    /// Returns the register, if the base is one.
    pub(crate) fn register(&self) -> Option<Reg> {
        match self.base {
            AddressBase::Value(s) => s.register(),
            AddressBase::Frame => None,
        }
    }

    #[inline]
    pub(crate) fn lanes(&self, cx: &Context<'_>) -> crate::model::Lanes {
        match self.base {
            AddressBase::Value(s) => cx.src(s).map(|v| v.wrapping_add(self.offset)),
            AddressBase::Frame => [cx.frame_base.wrapping_add(self.offset); 32],
        }
    }
}

pub(crate) struct Site<'s, 'f, 'a> {
    pub opcode: &'a str,
    pub operands: &'s [Operand<'a>],
    pub picks: Picks,
    pub f: &'f mut FunctionBuilder<'a>,
}

impl<'a> Site<'_, '_, 'a> {
    /// The choice at a named modifier position.
    pub(crate) fn get(&self, name: &str) -> Option<&'static str> {
        self.picks.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The choice at a position, or the empty string if it was omitted.
    pub(crate) fn text(&self, name: &str) -> &'static str {
        self.get(name).unwrap_or("")
    }

    pub(crate) fn ty(&self, name: &str) -> Result<Ty, Issue> {
        match self.get(name).and_then(Ty::parse) {
            Some(t) => Ok(t),
            None => issue(codes::UNKNOWN_MODIFIER, format!("the modifier `.{name}` must be a type"), ""),
        }
    }

    /// The memory order of the modifiers. Without modifiers, loads and stores are weak, as the
    /// manual says.
    pub(crate) fn order(&self) -> Order {
        // The manual treats volatile as relaxed with system scope, and mmio in the same way.
        let everywhere = self.has("volatile") || self.has("mmio");
        let scope = self.get("scope").and_then(Scope::parse);
        let sem = self.get("sem").unwrap_or("");
        Order {
            strong: if everywhere { Some(Scope::Sys) } else { scope },
            acquire: matches!(sem, "acquire" | "acq_rel"),
            release: matches!(sem, "release" | "acq_rel"),
            non_coherent: self.has("nc"),
        }
    }

    /// The memory order of atomics and reductions, which are relaxed at GPU scope without
    /// modifiers.
    pub(crate) fn atomic_order(&self) -> Order {
        let order = self.order();
        Order { strong: Some(order.strong.unwrap_or(Scope::Gpu)), ..order }
    }

    /// The rounding of `.rnd`, or to nearest if absent.
    pub(crate) fn rounding(&self) -> Rounding {
        match self.get("rnd") {
            Some("rz" | "rzi") => Rounding::Zero,
            Some("rm" | "rmi") => Rounding::Down,
            Some("rp" | "rpi") => Rounding::Up,
            Some("rna") => Rounding::NearestAway,
            _ => Rounding::Nearest,
        }
    }

    fn operand(&self, i: usize) -> Result<&Operand<'a>, Issue> {
        match self.operands.get(i) {
            Some(o) => Ok(o),
            None => issue(codes::BAD_OPERANDS, format!("operand {} is missing", i + 1), ""),
        }
    }

    fn wrong<T>(&self, i: usize, expected: &str) -> Result<T, Issue> {
        issue(codes::BAD_OPERANDS, format!("operand {} must be {expected}", i + 1), "")
    }

    fn register(&mut self, name: &'a str) -> Result<(Reg, u32), Issue> {
        match self.f.lookup(name)? {
            Entity::Reg { slot, width: Width::Bits(bits) } => Ok((slot, bits)),
            Entity::Reg { .. } => {
                issue(codes::BAD_OPERANDS, format!("`{name}` is a predicate, but a register is needed"), "")
            }
            _ => issue(codes::BAD_OPERANDS, format!("`{name}` is not a register"), ""),
        }
    }

    fn check_width(name: &str, bits: u32, want: u32, wider: bool) -> Result<(), Issue> {
        if bits == want || wider && bits > want {
            return Ok(());
        }
        let help = if wider { "use a register that is at least as wide as the type" } else { "" };
        issue(
            codes::BAD_OPERANDS,
            format!("`{name}` has {bits} bits, but the instruction's type has {want}"),
            help,
        )
    }

    fn named_dst(&mut self, name: &'a str, bits: u32, wider: bool) -> Result<(Reg, u32), Issue> {
        if name == "_" {
            return Ok((self.f.sink(), bits));
        }
        let (reg, width) = self.register(name)?;
        Self::check_width(name, width, bits, wider)?;
        self.f.writes(reg);
        Ok((reg, width))
    }

    /// Returns a destination register of exactly the type's width.
    pub(crate) fn dst(&mut self, i: usize, ty: Ty) -> Result<Reg, Issue> {
        self.dst_bits(i, ty.width())
    }

    pub(crate) fn dst_bits(&mut self, i: usize, bits: u32) -> Result<Reg, Issue> {
        match *self.operand(i)? {
            Operand::Name { name, offset: 0 } => Ok(self.named_dst(name, bits, false)?.0),
            _ => self.wrong(i, "a register"),
        }
    }

    /// Returns a destination of `ld` or `cvt`, whose register may be wider than the type, and its
    /// width.
    pub(crate) fn dst_wide(&mut self, i: usize, bits: u32) -> Result<(Reg, u32), Issue> {
        match *self.operand(i)? {
            Operand::Name { name, offset: 0 } => self.named_dst(name, bits, true),
            _ => self.wrong(i, "a register"),
        }
    }

    /// Returns a destination register, and the name of the selected part, which is empty for the
    /// whole word.
    pub(crate) fn part_dst(&mut self, i: usize) -> Result<(Reg, &'a str), Issue> {
        match *self.operand(i)? {
            Operand::Part { name, part, negated: false } => Ok((self.named_dst(name, 32, false)?.0, part)),
            _ => Ok((self.dst_bits(i, 32)?, "")),
        }
    }

    /// Returns a source register, the name of the selected part, and whether it is negated.
    pub(crate) fn part_src(&mut self, i: usize) -> Result<(Src, &'a str, bool), Issue> {
        match *self.operand(i)? {
            Operand::Part { name, part, negated } => {
                let whole = Operand::Name { name, offset: 0 };
                Ok((self.value(&whole, Ty::B32, false)?, part, negated))
            }
            _ => Ok((self.src(i, Ty::B32)?, "", false)),
        }
    }

    /// Returns a source register or literal of exactly the type's width.
    pub(crate) fn src(&mut self, i: usize, ty: Ty) -> Result<Src, Issue> {
        let operand = self.operand(i)?.clone();
        self.value(&operand, ty, false)
    }

    /// Returns a source of `st` or `cvt`, whose register may be wider than the type. Its low bits
    /// are used.
    pub(crate) fn src_wide(&mut self, i: usize, ty: Ty) -> Result<Src, Issue> {
        let operand = self.operand(i)?.clone();
        self.value(&operand, ty, true)
    }

    /// Returns a source of `cvt` or `cvta`, which can also be a special register or the address of
    /// a variable.
    pub(crate) fn src_any(&mut self, i: usize, ty: Ty) -> Result<Src, Issue> {
        let d = self.f.temporary();
        match self.computed(i, ty, d)? {
            Some(op) => {
                self.f.prelude(op);
                Ok(Src::reg(d))
            }
            None => self.src_named(i, ty),
        }
    }

    /// Returns a register, a literal, or the address of a variable of the module or of a parameter
    /// of the kernel.
    pub(crate) fn src_named(&mut self, i: usize, ty: Ty) -> Result<Src, Issue> {
        let Operand::Name { name, offset } = *self.operand(i)? else { return self.src(i, ty) };
        if super::special_register(name).is_some() {
            return self.src(i, ty);
        }
        match self.f.lookup(name)? {
            Entity::Symbol(index) => Ok(self.f.symbol(index, offset)),
            Entity::EntryParam { offset: at } => Ok(self.f.constant(at.wrapping_add(offset as u64))),
            _ => self.src(i, ty),
        }
    }

    /// Returns an operation that writes to `d` a value that is known only at run time: a special
    /// register, or the address of a variable in the frame. `None` for other operands.
    pub(crate) fn computed(&mut self, i: usize, ty: Ty, d: Reg) -> Result<Option<Op>, Issue> {
        let Operand::Name { name, offset } = *self.operand(i)? else { return Ok(None) };
        if let Some(special) = super::special_register(name) {
            let narrower =
                special.bits == 32 && ty.width() == 16 || special.name == "%gridid" && ty.width() == 32;
            if special.bits != ty.width() && !narrower {
                return issue(codes::BAD_OPERANDS, format!("`{name}` has {} bits", special.bits), "");
            }
            return Ok(Some(special.operation(d, mask(ty.width()))));
        }
        let Entity::Frame { offset: at, .. } = self.f.lookup(name)? else { return Ok(None) };
        let at = at.wrapping_add(offset as u64);
        Ok(Some(lift::custom(move |cx| {
            let address = cx.frame_base.wrapping_add(at);
            cx.splat(d, address);
            Ok(crate::exec::Flow::Next)
        })))
    }

    /// Returns a register or a literal.
    fn value(&mut self, operand: &Operand<'a>, ty: Ty, wider: bool) -> Result<Src, Issue> {
        match *operand {
            Operand::Number(n) => {
                let bits = literal(n, ty)?;
                Ok(self.f.constant(bits & mask(ty.width())))
            }
            Operand::Name { name: "WARP_SZ", .. } => Ok(self.f.constant(32)),
            Operand::Name { name, .. } if super::special_register(name).is_some() => issue(
                codes::BAD_OPERANDS,
                format!("`{name}` is a special register"),
                "copy it to a register with mov",
            ),
            Operand::Name { name, offset: 0 } => match self.f.lookup(name)? {
                Entity::Reg { slot, width: Width::Bits(bits) } => {
                    Self::check_width(name, bits, ty.width(), wider)?;
                    self.f.reads(slot);
                    Ok(Src::reg(slot))
                }
                Entity::Reg { .. } => issue(
                    codes::BAD_OPERANDS,
                    format!("`{name}` is a predicate, but a register is needed"),
                    "",
                ),
                _ => issue(
                    codes::BAD_OPERANDS,
                    format!("`{name}` is not a register"),
                    "take the address of a variable with mov",
                ),
            },
            _ => issue(codes::BAD_OPERANDS, "a register or a literal is needed here", ""),
        }
    }

    /// Whether the operand is this name.
    pub(crate) fn is_named(&self, i: usize, what: &str) -> bool {
        matches!(self.operands.get(i), Some(Operand::Name { name, offset: 0 }) if *name == what)
    }

    /// Returns an immediate integer.
    pub(crate) fn immediate(&self, i: usize) -> Result<u64, Issue> {
        match *self.operand(i)? {
            Operand::Number(Number::Int(v)) => Ok(v),
            _ => self.wrong(i, "an integer literal"),
        }
    }

    fn predicate(&mut self, name: &'a str) -> Result<Pred, Issue> {
        if name == "_" {
            return Ok(Pred::SINK);
        }
        match self.f.lookup(name)? {
            Entity::Reg { slot, width: Width::Pred } => Ok(Pred(slot.0)),
            _ => issue(codes::BAD_OPERANDS, format!("`{name}` is not a predicate register"), ""),
        }
    }

    pub(crate) fn pred_dst(&mut self, i: usize) -> Result<Pred, Issue> {
        match *self.operand(i)? {
            Operand::Name { name, offset: 0 } => self.predicate(name),
            _ => self.wrong(i, "a predicate register"),
        }
    }

    /// Returns a predicate source `p`, `!p` or a literal.
    pub(crate) fn pred_src(&mut self, i: usize) -> Result<PredSrc, Issue> {
        match *self.operand(i)? {
            Operand::Name { name, offset: 0 } => Ok(PredSrc { slot: self.predicate(name)?, flip: 0 }),
            Operand::Not(name) => Ok(PredSrc { slot: self.predicate(name)?, flip: u32::MAX }),
            Operand::Number(Number::Int(v)) => {
                Ok(PredSrc { slot: Pred::FALSE, flip: if v != 0 { u32::MAX } else { 0 } })
            }
            _ => self.wrong(i, "a predicate"),
        }
    }

    /// Returns `p` or `p|q`, with the sink for an absent `q`.
    pub(crate) fn pred_pair(&mut self, i: usize) -> Result<(Pred, Pred), Issue> {
        match *self.operand(i)? {
            Operand::Pair(p, q) => Ok((self.predicate(p)?, self.predicate(q)?)),
            _ => Ok((self.pred_dst(i)?, Pred::SINK)),
        }
    }

    /// Returns `d` or `d|p` with a register `d` of the given width.
    pub(crate) fn dst_pred(&mut self, i: usize, bits: u32) -> Result<(Reg, Pred), Issue> {
        match *self.operand(i)? {
            Operand::Pair(d, p) => Ok((self.named_dst(d, bits, false)?.0, self.predicate(p)?)),
            _ => Ok((self.dst_bits(i, bits)?, Pred::SINK)),
        }
    }

    /// Returns the elements of a brace-enclosed vector, or the operand itself if `count` is 1.
    fn elements(&self, i: usize, count: usize) -> Result<Vec<Operand<'a>>, Issue> {
        match self.operand(i)? {
            Operand::Vector(list) if list.len() == count => Ok(list.clone()),
            Operand::Vector(list) => issue(
                codes::BAD_OPERANDS,
                format!("the vector has {} elements, but the instruction needs {count}", list.len()),
                "",
            ),
            other if count == 1 => Ok(vec![other.clone()]),
            _ => self.wrong(i, &format!("a vector {{...}} of {count} elements")),
        }
    }

    /// Returns the destinations of a vector, with their widths; `wider` as for `ld`.
    pub(crate) fn vector_dst(
        &mut self,
        i: usize,
        count: usize,
        ty: Ty,
        wider: bool,
    ) -> Result<Vec<(Reg, u32)>, Issue> {
        let list = self.elements(i, count)?;
        list.iter()
            .map(|o| match *o {
                Operand::Name { name, offset: 0 } => self.named_dst(name, ty.width(), wider),
                _ => {
                    issue(codes::BAD_OPERANDS, "every element of a destination vector must be a register", "")
                }
            })
            .collect()
    }

    pub(crate) fn vector_src(
        &mut self,
        i: usize,
        count: usize,
        ty: Ty,
        wider: bool,
    ) -> Result<Vec<Src>, Issue> {
        let list = self.elements(i, count)?;
        list.iter().map(|o| self.value(o, ty, wider)).collect()
    }

    /// The count of `.vec`, or 1 if absent.
    pub(crate) fn vec_count(&self) -> usize {
        match self.get("vec") {
            Some("v2") => 2,
            Some("v4") => 4,
            Some("v8") => 8,
            _ => 1,
        }
    }

    /// The state space of `.ss`, or generic if absent.
    pub(crate) fn space(&self) -> Space {
        match self.get("ss") {
            Some("global") => Space::Global,
            Some("const") => Space::Const,
            Some("shared" | "shared::cta") => Space::Shared,
            Some("shared::cluster") => Space::Cluster,
            Some("local") => Space::Local,
            Some("param" | "param::entry" | "param::func") => Space::Param,
            _ => Space::Generic,
        }
    }

    /// Returns an address operand. Call parameters and the parameters of device functions are in
    /// the frame, so `.param` becomes the local space for them.
    pub(crate) fn address(&mut self, i: usize, space: Space) -> Result<(Address, Space), Issue> {
        match *self.operand(i)? {
            Operand::Address { base, offset } => self.resolve(base, offset as u64, space),
            _ => self.wrong(i, "an address in brackets"),
        }
    }

    /// Returns `[map, {coordinates}]`: the generic address of a tensor map, and the coordinates of
    /// 32 bits each.
    pub(crate) fn tensor(&mut self, i: usize) -> Result<(Address, Space, Vec<Src>), Issue> {
        let Operand::Tensor { base, offset, coordinates } = self.operand(i)?.clone() else {
            return self.wrong(i, "a tensor map with coordinates: [map, {c0, c1}]");
        };
        let (address, space) = self.resolve(base, offset as u64, Space::Generic)?;
        let coordinates: Result<_, _> = coordinates.iter().map(|c| self.value(c, Ty::B32, false)).collect();
        Ok((address, space, coordinates?))
    }

    fn resolve(&mut self, base: Base<'a>, offset: u64, space: Space) -> Result<(Address, Space), Issue> {
        let name = match base {
            Base::Absolute(v) => {
                let base = AddressBase::Value(self.f.constant(v));
                return Ok((Address { base, offset }, space));
            }
            Base::Name(name) => name,
        };
        match self.f.lookup(name)? {
            Entity::Reg { slot, width: Width::Bits(bits @ (32 | 64)) } => {
                if bits == 32 && matches!(space, Space::Global | Space::Generic) {
                    return issue(
                        codes::BAD_OPERANDS,
                        format!("`{name}` has 32 bits, but a global address needs 64"),
                        "",
                    );
                }
                self.f.reads(slot);
                Ok((Address { base: AddressBase::Value(Src::reg(slot)), offset }, space))
            }
            Entity::Symbol(index) => {
                let declared = self.f.symbol_space(index);
                let fits = space == declared || space == Space::Cluster && declared == Space::Shared;
                if space != Space::Generic && !fits {
                    let help = format!("use the instruction's .{} form", declared.name());
                    return issue(
                        codes::BAD_OPERANDS,
                        format!("`{name}` is a .{} variable", declared.name()),
                        help,
                    );
                }
                let base = AddressBase::Value(self.f.symbol(index, 0));
                // The name of a variable is an address in the variable's own space.
                Ok((Address { base, offset }, declared))
            }
            Entity::EntryParam { offset: at } if matches!(space, Space::Param | Space::Generic) => {
                let base = AddressBase::Value(self.f.constant(at));
                Ok((Address { base, offset }, Space::Param))
            }
            Entity::Frame { offset: at, .. }
                if matches!(space, Space::Param | Space::Local | Space::Generic) =>
            {
                Ok((Address { base: AddressBase::Frame, offset: offset.wrapping_add(at) }, Space::Local))
            }
            _ => issue(codes::BAD_OPERANDS, format!("`{name}` is not an address in .{}", space.name()), ""),
        }
    }

    /// Returns a label operand as an index into the module's labels.
    pub(crate) fn label(&mut self, i: usize) -> Result<u32, Issue> {
        match *self.operand(i)? {
            Operand::Name { name, offset: 0 } => match self.f.lookup(name)? {
                Entity::Label(id) => Ok(id),
                _ => issue(codes::BAD_OPERANDS, format!("`{name}` is not a label"), ""),
            },
            _ => self.wrong(i, "a label"),
        }
    }

    /// Checks an optional `.L2::cache_hint` operand: a 64-bit policy, which has no effect here.
    pub(crate) fn cache_hint(&mut self, i: usize) -> Result<(), Issue> {
        match (self.has("L2::cache_hint"), self.operands.len() > i) {
            (true, true) => self.src(i, Ty::B64).map(|_| ()),
            (false, false) => Ok(()),
            (true, false) => issue(codes::BAD_OPERANDS, "`.L2::cache_hint` needs a cache-policy operand", ""),
            (false, true) => issue(
                codes::BAD_OPERANDS,
                "there is one operand too many",
                "a cache policy needs `.L2::cache_hint`",
            ),
        }
    }
}

/// The bits of a literal for an operand of this type.
fn literal(n: Number, ty: Ty) -> Result<u64, Issue> {
    match (n, ty.kind) {
        (Number::Int(v), TypeKind::Bits | TypeKind::Unsigned | TypeKind::Signed) if ty.count == 1 => Ok(v),
        (Number::F32(v), TypeKind::Bits | TypeKind::Float(F32)) if ty.width() == 32 => Ok(v.into()),
        (Number::F64(v), TypeKind::Bits | TypeKind::Float(F64)) if ty.width() == 64 => Ok(v.to_bits()),
        // A decimal or double literal in single-precision code is rounded to single precision.
        (Number::F64(v), TypeKind::Float(F32)) if ty.width() == 32 => Ok((v as f32).to_bits().into()),
        _ => issue(
            codes::BAD_OPERANDS,
            format!("this literal does not fit the instruction's type of {} bits", ty.width()),
            "",
        ),
    }
}
