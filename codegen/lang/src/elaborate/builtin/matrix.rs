//! Products of matrices in shared memory, and the accumulators to which they are added.

use super::{Builtin, Call, builtin};
use crate::codes::meaning::{MISMATCH, NOT_CONSTANT, WRONG_ARGS, WRONG_KIND};
use crate::elaborate::value::{Distribution, Fragment, Share, Val};
use crate::elaborate::{Elab, Result, fail};
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::roles::WARPGROUP;
use weft_ir::{Accumulator, Value};
use weft_layout::ATOM_ROWS;

pub(super) const TABLE: &[Builtin] = &[
    builtin(
        "accumulator",
        "accumulator<f32>((m, n), over = (2, 1))",
        "A tile of zeros to which matrix products are added. `over` is the number of warpgroups that share its rows and columns, and the default is all of them. `accumulator(x)` begins with the elements x, which belong to an accumulator.",
        zero,
    ),
    builtin(
        "coord",
        "coord<m>(x)",
        "The row (m = 0) or column (m = 1) of each element x of an accumulator, as an integer. It is an `i32` when it is stored or converted.",
        coord,
    ),
    builtin(
        "mma",
        "mma(a, b, acc)",
        "Begins acc + a * transpose(b), of tiles (M, K) and (N, K) in shared memory, and returns the accumulator, which is in flight. `a` can be columns of an accumulator.",
        mma,
    ),
    builtin(
        "mma_wait",
        "mma_wait<n>(acc)",
        "Waits until all but the newest n products are done, and returns the accumulator. After `mma_wait<0>` it can be read: `acc[_, 0..64]`.",
        wait,
    ),
];

fn coord(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let (x, at) = call.val(0);
    let (_, share) = e.of_accumulator(call.name, &x, at)?;
    match call.mode(e)? {
        Some(0) => e.row_coordinates(share, call.span),
        Some(1) if !share.is_rows() => e.column_coordinates(share),
        _ => Err(Diagnostic::error(WRONG_ARGS, call.span, "`coord` needs a mode")
            .help("write `coord<0>(x)` for rows, or `coord<1>(x)` for columns")),
    }
}

fn zero(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    if let [(None, x @ Val::Fragment(_), at)] = &call.args[..] {
        call.no_words()?;
        return e.begun_with(x, *at);
    }
    let elem = super::tensor::elem(e, call)?;
    let (mut shape, mut over) = (None, None);
    for (name, val, at) in &call.args {
        match name.as_ref().map(|n| &*n.name) {
            None if shape.is_none() => shape = Some(pair(e, val, *at)?),
            Some("over") => over = Some(pair(e, val, *at)?),
            None => return fail(WRONG_ARGS, *at, "`accumulator` needs one shape"),
            Some(other) => {
                return fail(WRONG_ARGS, *at, format!("`accumulator` has no parameter named `{other}`"));
            }
        }
    }
    let Some([rows, cols]) = shape else {
        return Err(Diagnostic::error(WRONG_ARGS, call.span, "`accumulator` needs the shape of a tile")
            .help("accumulator<f32>((128, 256))"));
    };
    let threads = e.b.kernel().threads();
    let over = over.unwrap_or_else(|| spread(rows, threads / WARPGROUP));
    let ty = Accumulator { elem, rows, cols, over };
    if threads != ty.warpgroups().saturating_mul(WARPGROUP) {
        let message = format!(
            "the tile is divided over {} x {} warpgroups, but there are {threads} threads",
            over[0], over[1]
        );
        return Err(Diagnostic::error(WRONG_ARGS, call.span, message)
            .help("all threads compute matrix products together, and a warpgroup has 128 threads"));
    }
    let value = e.b.accumulator(ty)?;
    Ok(Val::Accumulator(value, ty))
}

/// The default numbers of warpgroups along rows and columns: along the rows for as long as each has
/// 64.
fn spread(rows: u32, warpgroups: u32) -> [u32; 2] {
    let max = rows / ATOM_ROWS as u32;
    let along = (1..=warpgroups).rev().find(|n| warpgroups.is_multiple_of(*n) && max.is_multiple_of(*n));
    let along = along.unwrap_or(1);
    [along, warpgroups.max(1) / along]
}

/// Two numbers that are known at compile time.
fn pair(e: &mut Elab<'_>, val: &Val, at: Span) -> Result<[u32; 2]> {
    let tuple = e.as_tuple(val, at)?;
    let known = |n: &weft_ir::Int| n.as_const().and_then(|n| u32::try_from(n).ok());
    match tuple.leaves().into_iter().map(known).collect::<Option<Vec<_>>>().as_deref() {
        Some([a, b]) => Ok([*a, *b]),
        _ => fail(
            NOT_CONSTANT,
            at,
            format!("expected two numbers that are known when the kernel is compiled, found {tuple}"),
        ),
    }
}

/// The accumulator among the arguments.
fn accumulator(e: &Elab<'_>, call: &Call<'_>, i: usize) -> Result<(Value, Accumulator)> {
    match call.val(i) {
        (Val::Accumulator(v, ty), _) => Ok((v, ty)),
        (other, at) => Err(Diagnostic::error(
            WRONG_KIND,
            at,
            format!("`{}` needs an accumulator, found {}", call.name, e.describe(&other)),
        )
        .help("let mut acc = accumulator<f32>((128, 256));")),
    }
}

fn mma(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(3..=3)?;
    call.no_words()?;
    let (acc, ty) = accumulator(e, call, 2)?;
    let a = match call.val(0) {
        (Val::Fragment(held), at) => in_registers(&held, ty, at)?,
        _ => call.tensor(e, 0)?.0.value,
    };
    let (b, _) = call.tensor(e, 1)?;
    let value = e.b.mma(a, b.value, acc)?;
    Ok(Val::Accumulator(value, ty))
}

/// The elements of the first factor in registers, which have the rows and the distribution of the
/// accumulator.
fn in_registers(held: &Fragment, acc: Accumulator, at: Span) -> Result<Value> {
    let fits = |share: &Share| (share.rows, share.over) == (acc.rows, acc.over) && acc.over[1] == 1;
    match held.distribution {
        Some(Distribution::Accumulated(share)) if fits(&share) => Ok(held.value),
        Some(Distribution::Accumulated(Share { rows, over, .. })) => {
            let tile = |rows, [m, n]: [u32; 2]| format!("{rows} rows over {m} x {n} warpgroups");
            let message = format!(
                "the factor in registers has {}, but the accumulator has {}",
                tile(rows, over),
                tile(acc.rows, acc.over)
            );
            Err(Diagnostic::error(MISMATCH, at, message).help(
                "both must have the same rows, and the columns of a row must not be divided over \
                     warpgroups",
            ))
        }
        _ => Err(Diagnostic::error(
            MISMATCH,
            at,
            "the elements for `mma` do not have the distribution of an accumulator",
        )
        .help(
            "a first factor in registers must come from columns of an accumulator: `acc[_, \
             0..64].to<bf16>()`",
        )),
    }
}

fn wait(e: &mut Elab<'_>, call: &Call<'_>) -> Result<Val> {
    call.arity(1..=1)?;
    let pending = call.mode(e)?.and_then(|n| u32::try_from(n).ok()).filter(|n| *n < 8);
    let Some(pending) = pending else {
        return Err(Diagnostic::error(
            WRONG_ARGS,
            call.span,
            "`mma_wait` needs the number of products that can stay in flight",
        )
        .help("write `mma_wait<0>(acc)` to wait for all of them; up to 7 can stay in flight"));
    };
    let (acc, ty) = accumulator(e, call, 0)?;
    let value = e.b.mma_wait(acc, pending)?;
    Ok(Val::Accumulator(value, ty))
}
