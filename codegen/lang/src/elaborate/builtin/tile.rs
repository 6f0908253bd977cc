//! Asynchronous tile copies: layouts of shared memory for copies and matrix products, pipelines,
//! and copies.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{LAYOUT, NOT_CONSTANT, NOT_HELD, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::value::{Tensor, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::builder::{Ctas, PlacedTile};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{BinOp, Bound, CmpOp, Control, Dim, Int, Layout, RedOp, Space, Tile, Value};

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "swizzled",
        "swizzled<T>(shape, major = 1)",
        "A layout of shared memory for tiles of T with mode `major` contiguous, permuted for copies and matrix products by the widest of 128, 64 and 32 bytes that divides a row. Later modes are stages.",
        swizzled,
    ),
    builtin(
        "pipeline",
        "pipeline(stages)",
        "A pipeline passes stages of shared memory from the threads that fill them to the threads that \
         read them, and back.",
        pipeline,
    ),
    builtin(
        "producer_acquire",
        "producer_acquire(p)",
        "Waits for the next empty stage, makes it expect the bytes of the copies that follow, and \
         returns it.",
        stage,
    ),
    builtin(
        "producer_commit",
        "producer_commit(p)",
        "Marks the oldest stage that the threads of the role acquired as full after they have written it. Threads that wait for the stage see what was written. Only for stages that threads write.",
        commit,
    ),
    builtin("consumer_wait", "consumer_wait(p)", "Waits for the next full stage, and returns it.", stage),
    builtin(
        "consumer_release",
        "consumer_release(p)",
        "Returns the oldest stage that was waited for, so that it can be filled again.",
        release,
    ),
    builtin(
        "consumer_skip",
        "consumer_skip(p, n)",
        "Skips n stages that another role waits for and releases. Roles that skip take turns.",
        skip,
    ),
    builtin(
        "tma",
        "tma(to, from, p)",
        "Begins to copy a tile of a parameter's tensor to shared memory, to arrive on pipeline p. `tma<cluster>` copies to the same location of every CTA of the cluster, and `tma<cluster, x>` to the CTAs that differ only in x. Without p, it copies from shared memory to the tensor. Elements beyond the tensor read as 0 and are not written. The threads write a tile that the end of a part of the tensor cuts.",
        tma,
    ),
    builtin(
        "tma_red",
        "tma_red<add>(to, from)",
        "Begins to reduce a tile in shared memory into a tensor, element by element.",
        tma_red,
    ),
    builtin(
        "bulk",
        "bulk(to, from, p)",
        "Begins to copy consecutive elements to shared memory, to arrive on pipeline p. `bulk<cluster>` works like `tma<cluster>`. Without p, it copies from shared memory to a tensor, to another PE's, or to that of all PEs at a multicast address. With p, it can also copy from shared memory to that of another CTA, to arrive on that CTA's pipeline.",
        bulk,
    ),
    builtin(
        "bulk_red",
        "bulk_red<add>(to, from)",
        "Begins to reduce elements in shared memory into the destinations of bulk copies, and with p into the shared memory of another CTA.",
        bulk_red,
    ),
    builtin(
        "tma_wait",
        "tma_wait<read>(n)",
        "Waits until all but the newest n copies out of shared memory have read it, or with `done`, until they are complete.",
        tma_wait,
    ),
];

fn swizzled(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    let elem = super::tensor::elem(e, call)?;
    let (mut shape, mut major) = (None, 1);
    for (name, val, at) in &call.args {
        match name.as_ref().map(|n| &*n.name) {
            None if shape.is_none() => shape = Some((val.clone(), *at)),
            None | Some("major") => major = constant(e, val.clone(), *at)?,
            Some(other) => {
                return fail(WRONG_ARGS, *at, format!("`swizzled` has no parameter named `{other}`"));
            }
        }
    }
    let Some((shape, at)) = shape else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`swizzled` needs a shape")
            .help("swizzled<bf16>((128, 64))"));
    };
    let shape = e.as_tuple(&shape, at)?;
    let extents: Option<Vec<i64>> =
        shape.leaves().into_iter().map(|n| n.as_const().filter(|n| *n > 0)).collect();
    let Some(extents) = extents else {
        return fail(NOT_CONSTANT, at, format!("the extents of {shape} are not all constants of 1 or more"));
    };
    let row = usize::try_from(major).ok().and_then(|m| extents.get(m)).copied().unwrap_or(0);
    let bad = |x: weft_layout::LayoutError| Diagnostic::error(LAYOUT, at, x.to_string());
    let major = usize::try_from(major).unwrap_or(2);
    if let Some((swizzle, layout)) =
        weft_layout::swizzled_panels(&extents, major, elem.bytes()).map_err(bad)?
    {
        return Ok(Val::Swizzled(swizzle, layout));
    }
    Err(Diagnostic::error(
        LAYOUT,
        at,
        format!("rows of {row} elements of {elem} are not a multiple of 32 bytes"),
    )
    .help("the narrowest swizzle permutes rows of 32 bytes: make the rows longer, or use a plain layout"))
}

fn constant(e: &mut Elab<'_>, val: Val, at: Span) -> Result<i64> {
    let n = e.as_int(val, at)?;
    n.as_const().ok_or_else(|| {
        Diagnostic::error(NOT_CONSTANT, at, format!("{n} is not known when the kernel is compiled"))
    })
}

fn pipeline(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let (val, at) = call.val(0);
    let stages = constant(e, val, at)?;
    let Some(stages) = u32::try_from(stages).ok().filter(|n| (1..=weft_ir::tile::MAX_STAGES).contains(n))
    else {
        let max = weft_ir::tile::MAX_STAGES;
        return fail(NOT_HELD, at, format!("a pipeline must have 1 to {max} stages, not {stages}"));
    };
    e.b.pipeline(stages).map(Val::Pipeline)
}

fn pipe(e: &Elab<'_>, call: &Call<'_>, i: usize) -> Result<Value> {
    match call.val(i) {
        (Val::Pipeline(p), _) => Ok(p),
        (other, at) => Err(Diagnostic::error(
            WRONG_KIND,
            at,
            format!("`{}` needs a pipeline, found {}", call.name, e.describe(&other)),
        )
        .help("let p = pipeline(4);")),
    }
}

fn stage(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let pipe = pipe(e, call, 0)?;
    let stage = match call.name {
        "consumer_wait" => e.b.consumer_wait(pipe)?,
        _ => e.b.producer_acquire(pipe)?,
    };
    e.symbol(stage).map(Val::Int)
}

fn commit(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let pipe = pipe(e, call, 0)?;
    e.b.producer_commit(pipe).map(|_| Val::Unit)
}

fn release(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    call.no_words()?;
    let pipe = pipe(e, call, 0)?;
    e.b.consumer_release(pipe).map(|_| Val::Unit)
}

fn skip(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    call.no_words()?;
    let pipe = pipe(e, call, 0)?;
    let (val, at) = call.val(1);
    let n = e.as_int(val, at)?;
    if n.upper_bound().is_some_and(|max| max < 0) {
        return fail(NOT_HELD, at, format!("a role cannot skip {n} stages, because it cannot go back"));
    }
    let stages = e.b.index(n)?;
    e.b.consumer_skip(pipe, stages).map(|_| Val::Unit)
}

fn tma(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    let dims = dims(call)?;
    let ((to, _), (from, _)) = (call.tensor(e, 0)?, call.tensor(e, 1)?);
    let inside = |e: &Elab<'_>, t: Tensor| e.tensor_type_of(t).space == Space::Shared;
    match (inside(e, to), inside(e, from), call.args.len()) {
        (true, false, 3) => {
            let pipe = pipe(e, call, 2)?;
            let tile = place(e, call, from, call.val(1).1)?;
            whole(e, call, to, 0)?;
            e.b.tma_load(to.value, &tile, pipe, dims.unwrap_or_default()).map(|_| Val::Unit)
        }
        (false, true, _) if dims.is_some() => Err(of_one_cta(call)),
        (false, true, 2) => store(e, call, None),
        (true, false, _) => Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "a copy to shared memory needs a pipeline to arrive on",
        )
        .help("pass the pipeline: `tma(to, from, p)`")),
        (false, true, _) => {
            Err(Diagnostic::error(WRONG_ARGS, call.val(2).1, "a copy out of shared memory has no pipeline")
                .help("wait for it with `tma_wait<read>(0)`"))
        }
        _ => fail(WRONG_ARGS, call.span, "`tma` copies between shared memory and a tensor outside of it"),
    }
}

/// The CTAs to which a copy goes: `<cluster>` is all those of the cluster, and `<cluster, x>` those
/// along one dimension. The result is `None` if the copy is for this CTA alone.
fn dims(call: &Call<'_>) -> Result<Option<Ctas>> {
    let mut words = call.words()?;
    let cluster = words.take(|w| (w == "cluster").then_some(Ctas::CLUSTER));
    let dims: Vec<_> = std::iter::from_fn(|| words.take(Dim::parse)).collect();
    words.done(call.name, "`cluster`, followed by dimensions x, y or z, or nothing")?;
    match (cluster, &dims[..]) {
        (None, []) => Ok(None),
        (None, _) => Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "write `cluster` before x, y and z, which are its dimensions",
        )
        .help(format!("write `{}<cluster, x>`", call.name))),
        (all, []) => Ok(all),
        (Some(_), _) => Ok(Some(Ctas::along(dims))),
    }
}

fn of_one_cta(call: &Call<'_>) -> Diagnostic {
    Diagnostic::error(WRONG_ARGS, call.span, "a copy out of shared memory can go to one CTA only")
        .help(format!("`{}<cluster>(to, from, p)` copies to shared memory", call.name))
}

fn bulk(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    let dims = dims(call)?;
    let ((to, at_to), (from, at_from)) = (call.tensor(e, 0)?, call.tensor(e, 1)?);
    if e.tensor_type_of(to).space != Space::Shared {
        return match dims {
            Some(_) => Err(of_one_cta(call)),
            None => bulk_out(e, call, None),
        };
    }
    if call.args.len() < 3 {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "a copy to shared memory needs a pipeline to arrive on",
        )
        .help("pass the pipeline: `bulk(to, from, p)`"));
    }
    let pipe = pipe(e, call, 2)?;
    whole(e, call, to, 0)?;
    whole(e, call, from, 1)?;
    for (t, at) in [(to, at_to), (from, at_from)] {
        if inside_part(e, t, true)?.is_some() {
            return Err(beyond(call, at));
        }
    }
    e.b.bulk_load(to.value, from.value, pipe, dims.unwrap_or_default()).map(|_| Val::Unit)
}

fn beyond(call: &Call<'_>, at: Span) -> Diagnostic {
    Diagnostic::error(LAYOUT, at, format!("`{}` may run past the end of this tensor", call.name))
        .label("all its elements are copied")
        .help(
            "use a tile that lies within the tensor: choose a size that divides the extent, and end \
             the loop at the number of tiles",
        )
}

fn bulk_red(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=3)?;
    let op = reduction(call)?;
    bulk_out(e, call, Some(op))
}

/// Emits a bulk copy out of shared memory.
fn bulk_out(e: &mut Elab<'_>, call: &Call<'_>, op: Option<RedOp>) -> Result<Val> {
    let ((to, at_to), (from, at_from)) = (call.tensor(e, 0)?, call.tensor(e, 1)?);
    whole(e, call, to, 0)?;
    whole(e, call, from, 1)?;
    let pipe = if call.args.len() == 3 { Some(pipe(e, call, 2)?) } else { None };
    let space = e.tensor_type_of(to).space;
    if pipe.is_some() && space != Space::Cluster {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.val(2).1,
            "a copy out of shared memory has no pipeline",
        )
        .help("wait for it with `tma_wait<read>(0)`"));
    }
    if inside_part(e, from, true)?.is_some() {
        return Err(beyond(call, at_from));
    }
    let copy = Tile::BulkStore { dst: to.value, src: from.value, op, pipe };
    let Some(inside) = inside_part(e, to, true)? else { return e.b.emit(copy).map(|_| Val::Unit) };
    if op.is_some() || !matches!(space, Space::Global | Space::Symmetric | Space::Peer) {
        return Err(beyond(call, at_to));
    }
    by_either(e, call, (inside, copy), (to, from))
}

/// Emits a tile copy out of shared memory that runs if the tile lies within the tensor, and
/// otherwise a copy by the threads.
fn by_either(
    e: &mut Elab<'_>,
    call: &Call<'_>,
    (inside, copy): (Value, Tile),
    (to, from): (Tensor, Tensor),
) -> Result<Val> {
    let then = e.b.nested(|b| b.emit(copy).map(drop))?;
    let (otherwise, _) = e.nested(|e| {
        e.store(to, Val::Tensor(from), call.span)?;
        e.b.tma_instead().map(drop)
    })?;
    e.b.at(call.span);
    e.b.emit(Control::If { cond: inside, then, otherwise }).map(|_| Val::Unit)
}

fn tma_red(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(2..=2)?;
    let op = reduction(call)?;
    store(e, call, Some(op))
}

fn reduction(call: &Call<'_>) -> Result<RedOp> {
    let mut words = call.words()?;
    let op = words.take(RedOp::parse);
    words.done(call.name, "a reduction")?;
    let name = &call.name;
    op.ok_or_else(|| {
        Diagnostic::error(WRONG_ARGS, call.span, format!("`{name}` needs a reduction"))
            .help(format!("write `{name}<add>(to, from)`"))
    })
}

fn store(e: &mut Elab<'_>, call: &Call<'_>, op: Option<RedOp>) -> Result<Val> {
    let ((to, at_to), (from, _)) = (call.tensor(e, 0)?, call.tensor(e, 1)?);
    let PlacedTile { view: dst, at, along } = place(e, call, to, at_to)?;
    whole(e, call, from, 1)?;
    let copy = Tile::TmaStore { dst, src: from.value, op, at, along };
    let Some(inside) = inside_part(e, to, false)? else { return e.b.emit(copy).map(|_| Val::Unit) };
    if op.is_some() {
        let message = format!("`{}` may run past the end of this part of a tensor", call.name);
        return Err(Diagnostic::error(LAYOUT, at_to, message)
            .label("it knows only the end of the whole tensor")
            .help("reduce into a range that lies within the part"));
    }
    by_either(e, call, (inside, copy), (to, from))
}

fn tma_wait(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let mut words = call.words()?;
    let read = words.take(|w| match w {
        "read" => Some(true),
        "done" => Some(false),
        _ => None,
    });
    words.done(call.name, "read or done")?;
    let (val, at) = call.val(0);
    let pending = constant(e, val, at)?;
    let Some((read, pending)) = read.zip(u32::try_from(pending).ok()) else {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "`tma_wait` must state what it waits for, and how many copies can be left",
        )
        .help("write `tma_wait<read>(0)` or `tma_wait<done>(0)`"));
    };
    let wait = if read { e.b.tma_wait_read(pending) } else { e.b.tma_wait(pending) };
    wait.map(|_| Val::Unit)
}

/// Checks that a tile which all threads copy together is the same for all of them.
fn whole(e: &Elab<'_>, call: &Call<'_>, t: Tensor, i: usize) -> Result<()> {
    if !t.private {
        return Ok(());
    }
    let message = format!(
        "`{}` copies a tile for all threads together, but {} belongs to one thread",
        call.name,
        e.describe(&Val::Tensor(t))
    );
    Err(Diagnostic::error(WRONG_KIND, call.val(i).1, message)
        .help("pass the tile itself, not a partition of it"))
}

/// Whether a tile lies within the part of a parameter's tensor to which it belongs, or `None` if it
/// is known to. The end of the tensor itself counts only if `own` is set, because a tensor map
/// knows that end.
fn inside_part(e: &mut Elab<'_>, t: Tensor, own: bool) -> Result<Option<Value>> {
    let positions = if own { None } else { e.positions(t.value) }.unwrap_or_default();
    let mut inside: Option<Value> = None;
    for b in &e.tensor_type_of(t).bounds {
        if positions.iter().any(|p| ends_with(b, p)) {
            continue;
        }
        let last = e.b.index(&b.offset + b.layout.cosize() - Int::from(1))?;
        let limit = e.b.index(b.limit.clone())?;
        let holds = e.b.compare(CmpOp::Lt, last, limit)?;
        inside = Some(match inside {
            Some(others) => e.b.binary(BinOp::And, others, holds)?,
            None => holds,
        });
    }
    Ok(inside)
}

/// Whether an element that is outside of the bound `b` is beyond the end of a parameter's mode.
fn ends_with(b: &Bound, p: &Bound) -> bool {
    let same = b.layout == p.layout && b.offset == p.offset && p.limit.is_le(&b.limit);
    // The bound can be the index of a tile beyond the last one.
    let tile = |n: &Int| p.limit.ceil_div(n) == b.limit && (&p.offset - &b.offset * n).lower_bound() >= 0;
    same || !moves(&b.layout) && p.layout.shape().leaves().into_iter().any(tile)
}

/// A tile with its place in the modes of its parameter.
fn place(e: &mut Elab<'_>, call: &Call<'_>, t: Tensor, span: Span) -> Result<PlacedTile> {
    let i = usize::from(call.val(1).1 == span);
    whole(e, call, t, i)?;
    let bad = |why: &str| {
        Diagnostic::error(LAYOUT, span, format!("`{}` needs a tile of a parameter: {why}", call.name))
            .help("select the tile with `flat_divide(x, (128, 64))[_, _, i, j]`, `local_tile` or ranges")
    };
    let Some(positions) = e.positions(t.value) else {
        return Err(bad("the position of this tensor in the modes of a parameter is not known"));
    };
    let (mut at, mut along) = (Vec::new(), Vec::new());
    for b in positions.iter() {
        let mode =
            runs_along(b).ok_or_else(|| bad(&format!("{} does not follow one of its modes", b.layout)))?;
        along.push(mode);
        at.push(e.b.index(b.offset.clone())?);
    }
    Ok(PlacedTile { view: t.value, at, along })
}

/// The mode of a tile, from 1, that steps through a parameter's mode one by one. It is 0 if the
/// tile has one position there.
fn runs_along(b: &Bound) -> Option<u32> {
    let mut found = 0;
    for i in 0..b.layout.rank() {
        let mode = b.layout.mode(i)?;
        if moves(&mode) {
            let flat = mode.coalesce().ok()?;
            let strides = flat.stride().leaves();
            if found != 0 || strides.len() != 1 || !strides[0].is(1) {
                return None;
            }
            found = u32::try_from(i).ok()? + 1;
        }
    }
    Some(found)
}

/// Whether a mode reaches more than its first position.
fn moves(mode: &Layout) -> bool {
    let pairs = mode.shape().leaves().into_iter().zip(mode.stride().leaves());
    pairs.into_iter().any(|(n, d)| !n.is(1) && !d.is(0))
}
