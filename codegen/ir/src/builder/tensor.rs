//! Parameters, and views of tensors.

use super::{Builder, Built};
use crate::diag::Diagnostic;
use crate::head::{Param, ParamKind};
use crate::kernel::{TeamRef, Value};
use crate::level::{Tensor, TensorLevel};
use crate::names::{Scalar, Space};
use crate::op::{self, Var, View};
use crate::types::{Bound, TensorType, ValueType};
use crate::typing;
use std::sync::Arc;
use weft_layout::{Coord, Int, Layout, LayoutError, Swizzle};

/// Methods for kernels with tensors.
impl<L: TensorLevel> Builder<L> {
    /// A tensor type without bounds.
    pub fn tensor(elem: Scalar, space: Space, layout: Layout, align: u32) -> L::Type {
        TensorType { elem, layout, swizzle: None, space, align, bounds: Vec::new() }.into()
    }

    /// Adds a run-time parameter. Parameters come before all other ops. An integer parameter is
    /// positive, as extents are.
    pub fn param(&mut self, name: &str, ty: L::Type) -> Built<Value> {
        self.param_of(name, ty, ParamKind::User, 1)
    }

    /// Adds a parameter whose argument comes from `kind`. An integer is a positive multiple of
    /// `div`, or any integer if `div` is 0.
    pub fn param_of(&mut self, name: &str, ty: L::Type, kind: ParamKind, div: i64) -> Built<Value> {
        let params = &mut self.kernel.head.params;
        let index = u32::try_from(params.len()).unwrap_or(u32::MAX);
        params.push(Param { name: name.into(), ty, kind, div, role: None, span: self.span });
        self.emit(Var::Param { index })
    }

    /// Appends a symbolic integer as an `i64`.
    pub fn index(&mut self, expr: impl Into<Int>) -> Built<Value> {
        self.emit(View::Index { expr: expr.into() })
    }

    /// Appends a view of a part of `base` that starts at element `offset` and has layout `layout`.
    /// The alignment follows from the offset.
    pub fn view(&mut self, base: Value, offset: Int, layout: Layout, bounds: Vec<Bound>) -> Built<Value> {
        let t = self.tensor_type(base)?;
        let ty = part_of(&t, &offset, layout, bounds);
        self.emit_as(View::Part { base, offset }, ty.into())
    }

    /// Appends a [`view`](Self::view) of the elements that a thread has of a tile which `over`
    /// warpgroups divide as an accumulator.
    pub fn distributed(
        &mut self,
        base: Value,
        offset: Int,
        layout: Layout,
        bounds: Vec<Bound>,
        over: [u32; 2],
    ) -> Built<Value> {
        let t = self.tensor_type(base)?;
        let ty = part_of(&t, &offset, layout, bounds);
        self.emit_as(View::Distributed { base, offset, over: over.into() }, ty.into())
    }

    /// Appends a view with the same layout at the team's multicast address.
    pub fn multicast(&mut self, base: Value, team: TeamRef) -> Built<Value> {
        self.emit(View::Multicast { base, team })
    }

    /// Appends a view with the same layout in the memory of rank `pe`.
    pub fn peer(&mut self, base: Value, team: TeamRef, pe: Value) -> Built<Value> {
        self.emit(View::Peer { base, team, pe })
    }

    /// Appends a tensor in the CTA's shared memory. A swizzled tensor is aligned to the period of
    /// its swizzle.
    pub fn shared(&mut self, elem: Scalar, layout: Layout, swizzle: Option<Swizzle>) -> Built<Value> {
        let op = View::Shared { name: "".into() };
        // The pattern of a swizzle repeats after 8 of its rows (PTX ISA, Swizzling Modes).
        let align = swizzle.map_or(16, |s| 8 * (16 << s.bits().min(3)));
        let ty = TensorType { elem, layout, swizzle, space: Space::Shared, align, bounds: Vec::new() };
        self.emit_as(op, ty.into())
    }

    /// Appends a view of the part of `base` at a coordinate, which keeps the modes that are
    /// [`Coord::All`]. The coordinates of the other modes must lie within them. A coordinate without
    /// [`Coord::All`] selects one element.
    ///
    /// # Errors
    /// Fails if `base` is not a tensor, or if the coordinate does not have its modes (E0200).
    pub fn part(&mut self, base: Value, at: &Coord) -> Built<Value> {
        let t = self.tensor_type(base)?;
        let cut = |l: &Layout| sliced(l, at);
        let bad = |e: LayoutError| Diagnostic::error(typing::MISMATCH, self.span, e.to_string());
        let (layout, offset) = cut(&t.layout).map_err(bad)?;
        let bounds = moved(&t.bounds, cut).map_err(bad)?;
        self.view(base, offset, layout, bounds)
    }

    /// Appends a view with the same layout in the shared memory of another CTA of the cluster. `cta`
    /// is its rank (`i32`).
    ///
    /// # Errors
    /// Fails if `base` is not in shared memory (E0202), or if `cta` is not an `i32` (E0200).
    pub fn in_cta(&mut self, base: Value, cta: Value) -> Built<Value> {
        self.emit(View::InCta { base, cta })
    }

    /// The type of a tensor.
    pub(super) fn tensor_type(&self, v: Value) -> Built<Arc<TensorType>> {
        self.ty(v).tensor().cloned().ok_or_else(|| {
            let message = format!("expected a tensor, found {}", self.ty(v));
            Diagnostic::error(typing::MISMATCH, self.span, message)
        })
    }
}

impl Builder<Tensor> {
    /// Gives a name to a tensor in shared memory that has none.
    pub fn name_shared(&mut self, tensor: Value, text: &str) {
        if let op::tensor::Op::View(View::Shared { name }) = &mut self.kernel.insts[tensor].op
            && name.is_empty()
        {
            *name = text.into();
        }
    }
}

/// The type of a part of a tensor. The alignment follows from the offset.
fn part_of(t: &TensorType, offset: &Int, layout: Layout, bounds: Vec<Bound>) -> TensorType {
    let align = aligned(t.align, offset, t.elem.bytes());
    TensorType { elem: t.elem, layout, swizzle: t.swizzle, space: t.space, align, bounds }
}

/// The alignment in bytes of an address that lies `offset` elements of `bytes` bytes after an
/// address aligned to `align`.
pub fn aligned(align: u32, offset: &Int, bytes: u32) -> u32 {
    let step = offset.divisor().checked_mul(i64::from(bytes)).unwrap_or(0);
    let twos = if step == 0 { u32::BITS - 1 } else { step.trailing_zeros().min(u32::BITS - 1) };
    align.min(1 << twos)
}

/// The bounds of a part of a tensor. `f` maps a layout of the tensor's shape to the part's layout
/// and the offset of its first element.
///
/// # Errors
/// Fails where `f` fails.
pub fn moved<E>(bounds: &[Bound], f: impl Fn(&Layout) -> Result<(Layout, Int), E>) -> Result<Vec<Bound>, E> {
    let one = |b: &Bound| {
        let (layout, more) = f(&b.layout)?;
        Ok(Bound { limit: b.limit.clone(), offset: &b.offset + more, layout })
    };
    bounds.iter().map(one).collect()
}

/// The layout of a part at a coordinate, and the offset of its first element. A coordinate without
/// [`Coord::All`] leaves one element.
///
/// # Errors
/// Fails if the coordinate does not have the modes of the layout.
pub fn sliced(layout: &Layout, at: &Coord) -> Result<(Layout, Int), LayoutError> {
    let (rest, offset) = layout.slice_and_offset(at)?;
    Ok(if at.has_all() { (rest, offset) } else { (Layout::one(), offset) })
}
