//! Tensors in memory: slices, divisions, partitions, loads and stores.

use super::arith::raw;
use super::distribution::{rows_of, same_order, unwrapped};
use super::value::{Distribution, Fragment, Order, Tensor, Threads, Val};
use super::words::indices_for_modes;
use super::{Elab, Result, fail};
use crate::codes::meaning::{BAD_INDEX, BAD_PARTITION, LAYOUT, MISMATCH, NOT_HELD};
use std::sync::Arc;
use weft_ir::builder::{moved, sliced};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::op::Spread;
use weft_ir::typing::MAX_LANES;
use weft_ir::{
    Arith, Bound, Group, Int, IntTuple, Layout, Operation, Space, Sreg, Team, Thread, Tile, Together, Type,
    Value, ValueType, View,
};
use weft_layout::{Coord, LayoutError, Node, Var};

impl Elab<'_> {
    /// A view with another layout and other bounds that begins `offset` elements after the tensor.
    pub(super) fn view(
        &mut self,
        t: Tensor,
        offset: Int,
        layout: Layout,
        bounds: Vec<Bound>,
    ) -> Result<Tensor> {
        let private = t.private || self.varies(&offset);
        let value = self.b.view(t.value, offset, layout, bounds)?;
        Ok(Tensor { value, private, element: false, order: t.order })
    }

    /// Records the position of a view of `t` in its parameter, if the position of `t` is known. `f`
    /// maps a layout of `t`'s shape to the layout of the view and the offset of its first element.
    fn follow(&mut self, t: Tensor, view: Tensor, f: impl Fn(&Layout) -> Option<(Layout, Int)>) {
        let Some(known) = self.positions(t.value) else { return };
        if let Ok(out) = moved(&known, |l| f(l).ok_or(())) {
            self.positions.insert(view.value, Arc::new(out));
        }
    }

    /// The positions of a tensor's elements in each mode of its parameter's layout, flattened.
    pub(super) fn positions(&self, v: Value) -> Option<Arc<Vec<Bound>>> {
        if let Some(known) = self.positions.get(&v) {
            return Some(known.clone());
        }
        let op = &self.b.kernel().insts.get(v)?.op;
        if let Some(View::Peer { base, .. }) = op.view() {
            return self.positions(*base);
        }
        op.var()?;
        let shape = self.b.ty(v).tensor()?.layout.shape().clone();
        let extents: Vec<Int> = shape.leaves().into_iter().cloned().collect();
        let along = |k: usize| {
            let mut at = 0;
            let stride = shape.map(&mut |_| {
                at += 1;
                Int::from(i64::from(at == k + 1))
            });
            let layout = Layout::new(shape.clone(), stride).ok()?;
            Some(Bound { limit: extents.get(k)?.clone(), offset: Int::ZERO, layout })
        };
        (0..extents.len()).map(along).collect::<Option<Vec<_>>>().map(Arc::new)
    }

    /// Evaluates `t[i, _, j]`.
    pub(super) fn slice(&mut self, t: Tensor, coords: &[(Val, Span)], span: Span) -> Result<Tensor> {
        if coords.iter().any(|(v, _)| matches!(v, Val::Range(..))) {
            return self.slice_ranges(t, coords, span);
        }
        let ty = self.tensor_type_of(t);
        let coord = self.coord(coords, ty.layout.shape(), span)?;
        let bad = |x: LayoutError| Diagnostic::error(BAD_INDEX, span, x.to_string());
        let modes = |i: usize| {
            if coords.len() == 1 { Some(ty.layout.size()) } else { ty.layout.mode(i).map(|m| m.size()) }
        };
        for (i, (val, at)) in coords.iter().enumerate() {
            if let (Val::Int(c), Some(extent)) = (val, modes(i))
                && (c.upper_bound().is_some_and(|c| c < 0) || (c.as_const().is_some() && extent.is_le(c)))
            {
                return fail(
                    BAD_INDEX,
                    *at,
                    format!("the index {c} is outside the {extent} elements of this mode"),
                );
            }
        }
        for (i, (val, at)) in coords.iter().enumerate() {
            if let (Val::Int(c), Some(extent)) = (val, modes(i).and_then(|extent| extent.as_const()))
                && let Some(stages) = self.stages_of(c).filter(|stages| *stages > extent)
            {
                let message =
                    format!("the stages of a pipeline of {stages} are the indices of {extent} elements");
                return Err(Diagnostic::error(BAD_INDEX, *at, message)
                    .help("give the tensor as many stages as the pipeline has"));
            }
        }
        let (layout, offset) = sliced(&ty.layout, &coord).map_err(bad)?;
        let mut bounds = moved(&ty.bounds, |l| sliced(l, &coord)).map_err(bad)?;
        if let Coord::Tuple(parts) = &coord
            && coord.has_all()
        {
            // A part beyond the last one does not exist: a team can have more PEs than a tensor has
            // tiles.
            let mut limits = Vec::new();
            for (i, c) in parts.iter().enumerate() {
                match (c, ty.layout.mode(i)) {
                    (Coord::Int(c), Some(mode)) => limits.push((c, mode.size())),
                    (nested, Some(mode)) => only_ones(nested, &mode, &mut limits),
                    _ => {}
                }
            }
            for (c, limit) in limits {
                if !self.is_below(c, &limit) {
                    let nowhere = layout.stride().map(&mut |_| Int::from(0));
                    let layout = Layout::new(layout.shape().clone(), nowhere).map_err(bad)?;
                    bounds.push(Bound { limit, offset: c.clone(), layout });
                }
            }
        }
        let view = self.view(t, offset, layout, bounds)?;
        self.follow(t, view, |l| sliced(l, &coord).ok());
        Ok(Tensor { element: !coord.has_all(), ..view })
    }

    /// The number of stages of the pipeline of which an integer is a stage.
    fn stages_of(&self, n: &Int) -> Option<i64> {
        let Node::Var(v) = n.node() else { return None };
        let op = |v: Value| self.b.kernel().insts.get(v).map(|inst| &inst.op);
        let own = op(Value(v.id))?;
        let made = own.arith().map_or(Some(own), |arith| match arith {
            Arith::Convert { a } => op(*a),
            _ => None,
        })?;
        match made.tile()? {
            Tile::Acquire { pipe } | Tile::Await { pipe } => match self.b.ty(*pipe) {
                Type::Pipeline(stages) => Some(i64::from(*stages)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether `a < b` is known: from their ranges, because ranks are below the size of their team,
    /// or because variables of loops are below the loops' ends.
    fn is_below(&self, a: &Int, b: &Int) -> bool {
        fn at_most(a: &Int, b: &Int) -> bool {
            match a.node() {
                Node::Min(x, y) => at_most(x, b) || at_most(y, b),
                _ => a.is_le(b),
            }
        }
        match a.node() {
            Node::Min(x, y) => return self.is_below(x, b) || self.is_below(y, b),
            Node::Var(v) if self.below.get(&v.id).is_some_and(|end| at_most(end, b)) => return true,
            _ => {}
        }
        let op = |n: &Int| match n.node() {
            Node::Var(v) => self.b.kernel().insts.get(Value(v.id)).map(|i| &i.op),
            _ => None,
        };
        let team = |n: &Int| op(n).and_then(|op| op.team());
        if let (Some(Team::MyPe { team: x }), Some(Team::NPes { team: y })) = (team(a), team(b)) {
            return x == y;
        }
        a.is_lt(b)
    }

    /// Applies ranges first, which keep their mode with a smaller extent, and then the other
    /// indices.
    fn slice_ranges(&mut self, t: Tensor, coords: &[(Val, Span)], span: Span) -> Result<Tensor> {
        let ty = self.tensor_type_of(t);
        if coords.len() != ty.layout.rank() {
            return fail(BAD_INDEX, span, indices_for_modes(coords.len(), ty.layout.rank()));
        }
        let cut = |l: &Layout| -> Result<(Layout, Int)> {
            let (mut shapes, mut strides) = (Vec::new(), Vec::new());
            let mut offset = Int::from(0);
            for (i, (val, at)) in coords.iter().enumerate() {
                let mode = l.mode(i).unwrap_or_else(Layout::one);
                match (val, leaf(mode.shape()), leaf(mode.stride())) {
                    (Val::Range(lo, hi), Some(n), _)
                        if hi.as_const().is_some() && n.is_lt(hi) || hi.is_le(lo) =>
                    {
                        return fail(
                            BAD_INDEX,
                            *at,
                            format!("the range {lo}..{hi} is empty or outside the {n} elements of this mode"),
                        );
                    }
                    (Val::Range(lo, hi), Some(_), Some(stride)) => {
                        offset = offset + lo * stride;
                        shapes.push(IntTuple::Int(hi - lo));
                        strides.push(IntTuple::Int(stride.clone()));
                    }
                    (Val::Range(..), ..) => {
                        return fail(BAD_INDEX, *at, format!("a range needs a flat mode, not {mode}"));
                    }
                    _ => {
                        shapes.push(mode.shape().clone());
                        strides.push(mode.stride().clone());
                    }
                }
            }
            let (shape, stride) =
                if shapes.len() == 1 && leaf(l.shape()).is_some() && l.shape().as_tuple().is_none() {
                    (shapes.remove(0), strides.remove(0))
                } else {
                    (IntTuple::Tuple(shapes), IntTuple::Tuple(strides))
                };
            let layout =
                Layout::new(shape, stride).map_err(|x| Diagnostic::error(BAD_INDEX, span, x.to_string()))?;
            Ok((layout, offset))
        };
        let (layout, offset) = cut(&ty.layout)?;
        let bounds = moved(&ty.bounds, cut)?;
        let part = self.view(t, offset, layout, bounds)?;
        self.follow(t, part, |l| cut(l).ok());
        if coords.iter().all(|(v, _)| matches!(v, Val::Range(..) | Val::Whole)) {
            return Ok(part);
        }
        let rest: Vec<_> = coords
            .iter()
            .map(|(v, at)| (if matches!(v, Val::Range(..)) { Val::Whole } else { v.clone() }, *at))
            .collect();
        self.slice(part, &rest, span)
    }

    /// Applies `f` to the layout of the tensor and to that of each bound. If the result has more
    /// elements than before (for a tile that does not divide the extent), bounds keep the original
    /// extents.
    pub(super) fn relayout(
        &mut self,
        t: Tensor,
        span: Span,
        f: impl Fn(&Layout) -> Result<Layout, LayoutError>,
    ) -> Result<Tensor> {
        let bad = |x: LayoutError| Diagnostic::error(LAYOUT, span, x.to_string());
        let f = |l: &Layout| extend(l, &f);
        let ty = self.tensor_type_of(t);
        let layout = f(&ty.layout).map_err(bad)?;
        let mut bounds = Vec::new();
        for b in &ty.bounds {
            bounds.push(Bound { layout: f(&b.layout).map_err(bad)?, ..b.clone() });
        }
        if layout.size() != ty.layout.size() {
            for mode in 0..ty.layout.rank() {
                let (limit, identity) = identity(ty.layout.shape(), mode).map_err(bad)?;
                let image = f(&identity).map_err(bad)?;
                if !image.cosize().is_le(&limit) {
                    bounds.push(Bound { limit, offset: Int::from(0), layout: image });
                }
            }
        }
        let view = self.view(t, Int::from(0), layout, bounds)?;
        self.follow(t, view, |l| Some((f(l).ok()?, Int::ZERO)));
        Ok(view)
    }

    /// Distributes a tensor's elements over threads. Thread `i` gets elements `V*i .. V*i + V` of
    /// every `V * threads`, as a tensor of modes (value, step). `V` elements are 16 bytes, or fewer
    /// if the layout cannot be divided that way. The width of accesses is independent of this. It
    /// follows from alignment when code is generated.
    ///
    /// A tensor whose rows are contiguous is distributed along its rows if its rows can be divided
    /// that way.
    pub(super) fn partition(
        &mut self,
        t: Tensor,
        threads: &Threads,
        vector: Option<i64>,
        span: Span,
    ) -> Result<Tensor> {
        if let Some(order) = rows_of(&self.tensor_type_of(t).layout) {
            let rows = self.relayout(t, span, reversed)?;
            if let Ok(part) = self.partition_as_it_is(rows, threads, vector, span) {
                return Ok(Tensor { order: Some(order), ..part });
            }
        }
        let part = self.partition_as_it_is(t, threads, vector, span)?;
        Ok(Tensor { order: Some(Order::FirstMode), ..part })
    }

    /// Does what [`Self::partition`] does, with the first mode the fastest.
    pub(super) fn partition_as_it_is(
        &mut self,
        t: Tensor,
        threads: &Threads,
        vector: Option<i64>,
        span: Span,
    ) -> Result<Tensor> {
        let widest = i64::from(16 / self.tensor_type_of(t).elem.bytes());
        let mut v = vector.unwrap_or(widest);
        loop {
            match self.partition_by(t, threads, v, span) {
                Err(_) if vector.is_none() && v > 1 => v /= 2,
                other => return other,
            }
        }
    }

    fn partition_by(&mut self, t: Tensor, threads: &Threads, v: i64, span: Span) -> Result<Tensor> {
        let ty = self.tensor_type_of(t);
        let total = ty.layout.size();
        let round = &threads.count * Int::from(v);
        let steps = total.ceil_div(&round);
        let thread = &threads.index * Int::from(v);
        let tiler = |inner: Int| {
            Layout::new(
                IntTuple::Tuple(vec![v.into(), steps.clone().into()]),
                IntTuple::Tuple(vec![Int::from(1).into(), inner.into()]),
            )
        };
        let bad = |x: LayoutError| {
            Diagnostic::error(
                BAD_PARTITION,
                span,
                format!("{} cannot be divided into vectors of {v} for the threads: {x}", ty.layout),
            )
            .help("partition row by row, or choose a tile whose extents the vectors and threads divide")
        };
        let divide = |l: &Layout| -> Result<(Layout, Int), LayoutError> {
            let flat = l.coalesce()?;
            match (leaf(flat.shape()), leaf(flat.stride())) {
                (Some(_), Some(s)) => {
                    let (shape, stride) = tiler(round.clone())?.into_parts();
                    let stride = stride.map(&mut |x| x * s);
                    Ok((Layout::new(shape, stride)?, &thread * s))
                }
                _ => {
                    let all = Layout::new(
                        IntTuple::Tuple(vec![v.into(), threads.count.clone().into(), steps.clone().into()]),
                        IntTuple::Tuple(vec![Int::from(1).into(), v.into(), round.clone().into()]),
                    )?;
                    let distribution = match l.composition(&all) {
                        // There are at most as many elements as threads, so each thread finds its
                        // own element whatever the shape is.
                        Err(_) if v == 1 && steps.is(1) => {
                            return Ok((tiler(0.into())?, l.crd2idx(&threads.index.clone().into())?));
                        }
                        other => other?,
                    };
                    distribution.slice_and_offset(&Coord::Tuple(vec![
                        Coord::All,
                        Coord::Int(threads.index.clone()),
                        Coord::All,
                    ]))
                }
            }
        };
        let (layout, offset) = divide(&ty.layout).map_err(bad)?;
        let mut bounds = moved(&ty.bounds, divide).map_err(bad)?;
        if steps.clone() * round.clone() != total {
            bounds.push(Bound {
                limit: total,
                offset: thread.clone(),
                layout: tiler(round.clone()).map_err(bad)?,
            });
        }
        let mut out = self.view(t, offset, layout, bounds)?;
        out.private = true;
        Ok(out)
    }

    /// Reads a tensor's elements into registers. If the tensor differs by thread, each thread reads
    /// its own. If it is the same for the whole CTA, its elements are distributed over the threads.
    pub(super) fn load(&mut self, t: Tensor, span: Span) -> Result<Fragment> {
        let ty = self.tensor_type_of(t);
        // The rule of the op reports errors of a load from multicast memory.
        let (part, distribution) = if t.private || t.element || ty.space == Space::Multicast {
            (t, None)
        } else {
            let (part, turns) = self.distribute(t, span)?;
            (part, Some(Distribution::Evenly(turns)))
        };
        self.b.at(span);
        let value = self.b.load(part.value)?;
        Ok(self.fragment(part, value, distribution))
    }

    /// The register tensor that results from an op on `part`.
    pub(super) fn fragment(
        &mut self,
        part: Tensor,
        value: Value,
        distribution: Option<Distribution>,
    ) -> Fragment {
        let ty = self.tensor_type_of(part);
        Fragment {
            value,
            shape: ty.layout.shape().clone(),
            bounds: ty.bounds.clone(),
            distribution,
            order: part.order,
        }
    }

    /// The part of a tensor that this thread accesses in a cooperative operation, and its
    /// distribution.
    pub(super) fn part_of(&mut self, t: Tensor, span: Span) -> Result<(Tensor, Option<Distribution>)> {
        if t.private || t.element {
            return Ok((t, None));
        }
        self.distribute(t, span).map(|(p, n)| (p, Some(Distribution::Evenly(n))))
    }

    /// The target and the value of a store, which must have the same elements and type. A scalar is
    /// stored to every element.
    pub(super) fn place(&mut self, t: Tensor, val: Val, span: Span) -> Result<(Tensor, Value)> {
        let ty = self.tensor_type_of(t);
        let val = self.read_for(t, val, span)?;
        let val = self.scalar_or_frag(val, Some(ty.elem), span)?;
        let val = self.check_elem(val, Some(ty.elem), span)?;
        let (part, distribution) = match &val {
            Val::Fragment(Fragment { distribution: Some(Distribution::Accumulated(share)), .. })
                if !t.private && !t.element =>
            {
                self.b.emit(Together::Converge { group: Group::Block })?;
                (self.written_as(t, *share, span)?, Some(Distribution::Accumulated(*share)))
            }
            Val::Fragment(Fragment { distribution: Some(Distribution::Evenly(turns)), .. })
                if self.has(t, *turns) =>
            {
                (self.distribute_as(t, *turns, span)?, Some(Distribution::Evenly(*turns)))
            }
            _ => self.part_of(t, span)?,
        };
        let n = self.tensor_type_of(part).layout.size();
        let Some(n) = n.as_const().and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= MAX_LANES) else {
            let message =
                format!("a thread can store up to {MAX_LANES} elements at once, but {} has {n}", ty.layout);
            return Err(
                Diagnostic::error(NOT_HELD, span, message).help("loop over the steps of the partition")
            );
        };
        let want = Type::lanes_of(ty.elem, n);
        if let Val::Fragment(f) = &val {
            same_order(f.order, part.order, span)?;
        }
        let value = match &val {
            Val::Fragment(f) if f.distribution == distribution && *self.b.ty(f.value) == want => f.value,
            Val::Fragment(f) => {
                let (have, how_have) = (self.b.ty(f.value).to_string(), how(f.distribution));
                let message = format!("expected {want} {}, found {have} {how_have}", how(distribution));
                return Err(Diagnostic::error(MISMATCH, span, message)
                    .help("both sides must have the same elements, partitioned in the same way"));
            }
            other => self.b.splat(raw(other), &want)?,
        };
        self.b.at(span);
        Ok((part, value))
    }

    /// Evaluates `t[...] = v`, which is a weak store, or `multimem.st.relaxed.sys` to a multicast
    /// address.
    pub(super) fn store(&mut self, t: Tensor, val: Val, span: Span) -> Result<()> {
        let (part, value) = self.place(t, val, span)?;
        if self.b.ty(part.value).space() == Some(Space::Multicast) {
            self.b.mc_store(part.value, value).map(|_| ())
        } else {
            self.b.store(part.value, value).map(|_| ())
        }
    }

    /// Whether an integer can differ between the threads of a CTA.
    pub(super) fn varies(&self, e: &Int) -> bool {
        let mut todo = Vec::new();
        e.vars(&mut |v| todo.push(Value(v.id)));
        let mut seen = std::collections::HashSet::new();
        while let Some(v) = todo.pop() {
            if !seen.insert(v) {
                continue;
            }
            if self.varying.contains(&v) {
                return true;
            }
            let Some(op) = self.b.kernel().insts.get(v).map(|i| &i.op) else { continue };
            let differs = op.spread() == Spread::Threads
                || matches!(
                    op.thread(),
                    Some(
                        Thread::Special { reg: Sreg::ThreadIdx | Sreg::LaneIdx, .. } | Thread::Shuffle { .. }
                    )
                )
                || matches!(op.together(), Some(Together::Reduce { group: Group::Warp, .. }));
            if differs {
                return true;
            }
            if !matches!(op.together(), Some(Together::Reduce { group: Group::Block, .. })) {
                op.operands(&mut |x| todo.push(x));
            }
        }
        false
    }
}

/// The distribution of elements, for messages.
fn how(distribution: Option<Distribution>) -> String {
    match distribution {
        None => "in one thread".to_owned(),
        Some(Distribution::Evenly(turns)) => format!("of {turns} over the CTA"),
        Some(Distribution::Accumulated(share)) => format!("of an accumulator's {share}"),
    }
}

/// The modes of a layout in the opposite order.
pub(super) fn reversed(l: &Layout) -> Result<Layout, LayoutError> {
    let l = unwrapped(l);
    let modes = (0..l.rank()).rev().filter_map(|i| l.mode(i));
    let (shape, stride) = modes.map(Layout::into_parts).unzip();
    Layout::new(IntTuple::Tuple(shape), IntTuple::Tuple(stride))
}

/// The integer, or the element of a tuple of one integer.
fn leaf(t: &IntTuple) -> Option<&Int> {
    match t {
        IntTuple::Int(n) => Some(n),
        IntTuple::Tuple(items) => match &items[..] {
            [one] => leaf(one),
            _ => None,
        },
    }
}

/// The extent of mode `k` of a shape, and the layout that maps a coordinate to its position in that
/// mode.
fn identity(shape: &IntTuple, k: usize) -> Result<(Int, Layout), LayoutError> {
    match shape {
        IntTuple::Int(n) => Ok((n.clone(), Layout::new(shape.clone(), Int::from(1))?)),
        IntTuple::Tuple(modes) => {
            let strides = modes.iter().enumerate().map(|(i, m)| {
                let mut next = Int::from(i64::from(i == k));
                // The layout is compact, but an extent of 1 keeps its stride, because the mode can
                // run past its end.
                m.map(&mut |n| {
                    let stride = next.clone();
                    next = &next * n;
                    stride
                })
            });
            let strides = IntTuple::Tuple(strides.collect());
            let extent = modes.get(k).map_or(Int::from(1), IntTuple::product);
            Ok((extent, Layout::new(shape.clone(), strides)?))
        }
    }
}

/// Applies `f` to a layout whose modes can run past their end. In CuTe a static extent of 1 has no
/// stride (`1:0`), so coordinates beyond it would give its one element. While `f` works, such an
/// extent is replaced by an unknown extent.
fn extend(l: &Layout, f: &dyn Fn(&Layout) -> Result<Layout, LayoutError>) -> Result<Layout, LayoutError> {
    const ONE: u32 = u32::MAX;
    let mut ones = false;
    let unknown = Int::var(Var { id: ONE, name: "1".into(), div: 1, min: 1, max: None });
    let shape = l.shape().map(&mut |n| {
        ones |= n.is(1);
        if n.is(1) { unknown.clone() } else { n.clone() }
    });
    if !ones {
        return f(l);
    }
    match f(&Layout::new(shape, l.stride().clone())?) {
        Ok(out) => out.subst(&mut |v| (v.id == ONE).then(|| Int::from(1))),
        Err(_) => f(l),
    }
}

/// Finds the coordinates within a nested mode that select from a single part, and the number of
/// parts, which is 1. Such a mode has no stride that would carry a coordinate beyond the bounds of
/// the tensor.
fn only_ones<'c>(coord: &'c Coord, mode: &Layout, found: &mut Vec<(&'c Int, Int)>) {
    match coord {
        Coord::Int(c) if mode.size().as_const() == Some(1) => found.push((c, mode.size())),
        Coord::Tuple(parts) => {
            for (i, part) in parts.iter().enumerate() {
                if let Some(mode) = mode.mode(i) {
                    only_ones(part, &mode, found);
                }
            }
        }
        _ => {}
    }
}
