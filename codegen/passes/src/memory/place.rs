//! The place of a tensor: its parameter or allocation, the route to it, and the offset in it.

use crate::codes::NO_ADDRESS;
use crate::edit::{Emit, param_index};
use std::sync::Arc;
use weft_ir::builder::{Built, aligned};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{Address, BinOp, Bound, Int, Operation, Scalar, TeamRef, TensorType, Value, View};

/// The place of a tensor in memory.
#[derive(Clone, Debug)]
pub(super) struct TensorAddress {
    /// The parameter or shared allocation whose memory contains the tensor.
    pub root: Value,
    /// The route by which the memory is accessed.
    pub route: Route,
    /// The PE, and the team of its rank, if the route leads to another PE.
    pub pe: Option<(TeamRef, Value)>,
    /// The CTA of the cluster, if the route leads to the shared memory of another one.
    pub cta: Option<Value>,
    /// The offset from the root's first element, in elements.
    pub offset: Int,
    /// The provable alignment of its first element in bytes.
    pub align: u32,
    /// The type of the tensor.
    pub ty: Arc<TensorType>,
    /// For the elements that a thread has of a tile which warpgroups divide: the tile, and the
    /// numbers of warpgroups that divide its rows and its columns.
    pub distributed: Option<Arc<(TensorAddress, [u32; 2])>>,
    root_align: u32,
}

/// The route by which memory is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// The root's own address.
    Local,
    /// The multicast address, which reaches every PE of a team at once.
    Everywhere(TeamRef),
    /// A pointer to the root's first byte on another PE, or in another CTA of the cluster.
    There(Value),
}

impl TensorAddress {
    /// The place of a parameter or allocation.
    pub fn root(k: &Kernel, v: Value) -> Option<TensorAddress> {
        let Type::Tensor(ty) = k.ty(v) else { return None };
        let ty = ty.clone();
        (param_index(k, v).is_some() || matches!(k.op(v).view(), Some(View::Shared { .. }))).then(|| {
            TensorAddress {
                root: v,
                route: Route::Local,
                pe: None,
                cta: None,
                offset: Int::ZERO,
                align: ty.align.max(1),
                distributed: None,
                root_align: ty.align.max(1),
                ty,
            }
        })
    }

    /// The place of a view.
    pub fn view(&self, offset: &Int, ty: Arc<TensorType>) -> TensorAddress {
        let offset = &self.offset + offset;
        // The alignment that the view declares can be greater than the one that follows from the
        // sum of the offsets.
        let align = ty.align.max(aligned(self.root_align, &offset, ty.elem.bytes()));
        TensorAddress { offset, align, ty, distributed: None, ..self.clone() }
    }

    /// The same place by another route.
    pub fn by(&self, route: Route, ty: Arc<TensorType>) -> TensorAddress {
        TensorAddress { route, ty, distributed: None, ..self.clone() }
    }

    /// The same place on the PE of this rank in a team.
    pub fn on(self, pe: (TeamRef, Value)) -> TensorAddress {
        TensorAddress { pe: Some(pe), ..self }
    }

    /// The same place in the CTA of this rank.
    pub fn in_cta(self, cta: Value) -> TensorAddress {
        TensorAddress { cta: Some(cta), ..self }
    }

    /// The address of its first element, computed from that of its root's first byte.
    pub fn pointer(&self, b: &mut Builder, root: Value) -> Built<Value> {
        elements_on(b, root, &self.offset, self.ty.elem)
    }

    /// The extent of the tensor that this tile is a part of, if the end of the tensor can cut the tile.
    pub fn cut(&self) -> Option<&Int> {
        let cuts = |bound: &&Bound| bound.layout.stride().leaves().iter().any(|d| !d.is(0));
        self.ty.bounds.iter().find(cuts).map(|bound| &bound.limit)
    }

    /// The alignment of its root's first byte.
    pub fn root_align(&self) -> u32 {
        self.root_align
    }

    /// A description of what limits its alignment.
    pub fn limit(&self) -> String {
        let from_offset = aligned(1 << 20, &self.offset, self.ty.elem.bytes());
        if from_offset < self.root_align {
            format!("it starts at element {}", self.offset)
        } else {
            format!("the tensor is declared `align {}`", self.root_align)
        }
    }
}

/// The address `elements` elements after `pointer`. The offset in elements is computed separately,
/// because bounds use it too.
pub(super) fn elements_on(b: &mut Builder, pointer: Value, elements: &Int, elem: Scalar) -> Built<Value> {
    let bytes = i64::from(elem.bytes());
    if let Some(n) = elements.as_const() {
        return b.offset(pointer, &(Int::from(n) * bytes));
    }
    let elements = b.index(elements.clone())?;
    let size = b.i64(bytes)?;
    let bytes = b.binary(BinOp::Mul, elements, size)?;
    b.emit(Address::PtrAdd { ptr: pointer, bytes })
}

/// The error for a tensor that has no address.
pub(super) fn no_address(span: Span, what: &Type) -> Diagnostic {
    Diagnostic::error(NO_ADDRESS, span, format!("{what} has no address"))
        .help("load and store only parameters, shared memory, and views of them")
}

/// The place, or the error if it is missing.
pub(super) fn found<'a>(
    place: Option<&'a TensorAddress>,
    k: &Kernel,
    v: Value,
    span: Span,
) -> Built<&'a TensorAddress> {
    place.ok_or_else(|| no_address(span, k.ty(v)))
}
