//! Remote memory access: put, get, their strided and single-element forms, puts with a signal.

use super::table::{BITS, Family, Param, RMA, Size, WIDTHS, row};
use super::{Call, Step, signal};
use crate::check::AccessKind;
use crate::exec::Fault;
use crate::exec::access::{Space, from_le};
use crate::exec::remote::notes::Completed;
use crate::exec::remote::wire::{Change, Data, Late, Put};

const DST: Param = ("dst", Size::Long);
const SRC: Param = ("src", Size::Long);
const COUNT: Param = ("count", Size::Long);
const PE: Param = ("pe", Size::Int);
const COPY: &[Param] = &[DST, SRC, COUNT, PE];
const STRIDED: &[Param] = &[DST, SRC, ("dst_stride", Size::Long), ("src_stride", Size::Long), COUNT, PE];
const SIGNALLED: &[Param] =
    &[DST, SRC, COUNT, ("signal", Size::Long), ("value", Size::Long), ("signal_op", Size::Int), PE];

pub(super) static FAMILY: Family = Family {
    title: "Remote memory access",
    meaning: "`dst` of a put and `src` of a get are the caller's own addresses of symmetric objects. The source of\n\
              a put can be any memory of the caller, and the destination of a get any global memory. A blocking\n\
              put has read its source when it returns, and lands then or later. A blocking get is done when it\n\
              returns. A non-blocking put reads its source, and a non-blocking get writes its destination, only\n\
              when it lands. (A source in shared or local memory is read at once.) Puts can land in pieces, and a\n\
              put's signal lands after all of them.",
    rows: &[
        row("{T}_p", &[DST, ("value", Size::Value), PE], p).types(RMA).thread(),
        row("{T}_g", &[SRC, PE], g).types(RMA).thread().returns(Size::Value),
        row("{T}_put", COPY, |c| put(c, Late::Prompt, false)).types(RMA),
        row("put{T}", COPY, |c| put(c, Late::Prompt, false)).types(WIDTHS),
        row("{T}_put_nbi", COPY, |c| put(c, Late::Lazy, false)).types(RMA),
        row("put{T}_nbi", COPY, |c| put(c, Late::Lazy, false)).types(WIDTHS),
        row("{T}_get", COPY, get).types(RMA),
        row("get{T}", COPY, get).types(WIDTHS),
        row("{T}_get_nbi", COPY, get_nbi).types(RMA),
        row("get{T}_nbi", COPY, get_nbi).types(WIDTHS),
        row("{T}_iput", STRIDED, iput).types(RMA),
        row("iput{T}", STRIDED, iput).types(BITS),
        row("{T}_iget", STRIDED, iget).types(RMA),
        row("iget{T}", STRIDED, iget).types(BITS),
        row("{T}_put_signal", SIGNALLED, |c| put(c, Late::Prompt, true)).types(RMA),
        row("put{T}_signal", SIGNALLED, |c| put(c, Late::Prompt, true)).types(WIDTHS),
        row("{T}_put_signal_nbi", SIGNALLED, |c| put(c, Late::Signal, true)).types(RMA),
        row("put{T}_signal_nbi", SIGNALLED, |c| put(c, Late::Signal, true)).types(WIDTHS),
    ],
};

fn p(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [dst, value, pe, ..] = c.args;
    let to = c.pe(pe)?;
    let bytes = c.f.ty.bytes();
    let dst = c.symmetric("dst", dst, bytes as u64)?;
    let from = c.my_pe();
    c.completes(Completed::Source);
    // One element arrives as a whole, so others can wait for it.
    let landing = c.landing(false);
    c.cx.remote.wire.update(c.cx.memory, (from, to), (dst, bytes), value, Change::Set, landing);
    Ok(Step::Done(0))
}

fn g(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [src, pe, ..] = c.args;
    let to = c.pe(pe)?;
    let bytes = c.f.ty.bytes();
    let src = c.symmetric("src", src, bytes as u64)?;
    c.watch(AccessKind::Read, c.cx.memory.heap(to, src), bytes);
    let value = from_le(c.cx.memory.at(c.cx.memory.heap(to, src), bytes));
    let me = c.my_pe();
    c.cx.remote.wire.count(to, me, bytes);
    let addr = c.cx.memory.peer_addr(me, to, src);
    c.repeats = c.cx.note_read(Space::Global, addr, value, bytes);
    Ok(Step::Done(value))
}

fn put(c: &mut Call<'_, '_>, late: Late, with_signal: bool) -> Result<Step, Fault> {
    let [dst, src, count, a, value, op, b, ..] = c.args;
    let (to, signal) = match with_signal {
        true => (c.pe(b)?, Some((signal::object(c, a)?, value, signal::change(c, op)?))),
        false => (c.pe(a)?, None),
    };
    let bytes = c.bytes(count)?;
    let element = c.f.ty.bytes();
    let dst = c.symmetric("dst", dst, bytes)?;
    c.aligned("src", src, element)?;
    let later = if late == Late::Prompt || bytes == 0 { None } else { c.global("src", src, bytes, false)? };
    let data = match later {
        Some(spot) => {
            c.completes(Completed::Nothing);
            c.watch(AccessKind::Read, spot, bytes as usize);
            Data::Memory(spot, bytes as usize)
        }
        None => {
            c.completes(Completed::Source);
            Data::Bytes(c.load("src", src, bytes)?)
        }
    };
    c.watch(AccessKind::Write, c.cx.memory.heap(to, dst), bytes as usize);
    let landing = if signal.is_some() { c.landing(true) } else { None };
    let put = Put { from: c.my_pe(), to, dst, step: element as u64, element, data, signal, landing };
    c.cx.remote.wire.put(c.cx.memory, late, put);
    Ok(Step::Done(0))
}

/// Checks the common arguments of gets, and returns the source PE, the heap offset of the source,
/// and the size in bytes.
fn source(c: &mut Call<'_, '_>) -> Result<(usize, u64, u64), Fault> {
    let [dst, src, count, pe, ..] = c.args;
    let to = c.pe(pe)?;
    let bytes = c.bytes(count)?;
    let at = c.symmetric("src", src, bytes)?;
    c.aligned("dst", dst, c.f.ty.bytes())?;
    let (space, _) = Space::of_generic(dst);
    if space != Space::Global && bytes > 0 {
        let message = format_args!("`dst` is in {} memory", space.name());
        let help = "get into global memory, or load from the peer's address: NVSHMEM's bitcode writes `dst` with global stores";
        return Err(c.fault(message, help));
    }
    Ok((to, at, bytes))
}

fn get(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (to, src, bytes) = source(c)?;
    c.watch(AccessKind::Read, c.cx.memory.heap(to, src), bytes as usize);
    let data = c.cx.memory.at(c.cx.memory.heap(to, src), bytes as usize).to_vec();
    let me = c.my_pe();
    c.cx.remote.wire.count(to, me, data.len());
    c.store("dst", c.args[0], &data)?;
    Ok(Step::Done(0))
}

fn get_nbi(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (to, src, bytes) = source(c)?;
    if bytes == 0 {
        return Ok(Step::Done(0));
    }
    if let Some(dst) = c.global("dst", c.args[0], bytes, true)? {
        c.completes(Completed::Nothing);
        c.watch(AccessKind::Read, c.cx.memory.heap(to, src), bytes as usize);
        c.watch(AccessKind::Write, dst, bytes as usize);
        let from = c.my_pe();
        c.cx.remote.wire.get(c.cx.memory, from, to, src, dst, bytes as usize);
    }
    Ok(Step::Done(0))
}

/// Returns the strides of a strided call in elements, and the distances from the first to the end
/// of the last element in bytes.
fn strides(c: &Call<'_, '_>) -> Result<([u64; 2], [u64; 2]), Fault> {
    let [_, _, dst, src, count, ..] = c.args;
    let element = c.f.ty.bytes() as u64;
    let mut spans = [0; 2];
    for ((name, stride), span) in [("dst_stride", dst), ("src_stride", src)].into_iter().zip(&mut spans) {
        if (stride as i64) < 1 {
            let message = format_args!("`{name}` is {}", stride as i64);
            return Err(c.fault(
                message,
                "use a stride of at least 1: strides count elements, and contiguous elements have stride 1",
            ));
        }
        let last = count.saturating_sub(1).checked_mul(stride);
        let bytes = last.and_then(|n| n.checked_add(1)).map_or(u64::MAX, |n| n.saturating_mul(element));
        if bytes >= 1 << 48 {
            let message = format_args!("{count} elements every {stride} are more than any allocation has");
            return Err(c.fault(message, "check the count and the stride"));
        }
        *span = if count == 0 { 0 } else { bytes };
    }
    Ok(([dst, src], spans))
}

/// Checks that loads and stores reach the peer, as NVSHMEM's strided functions require.
fn reachable(c: &Call<'_, '_>, pe: usize) -> Result<(), Fault> {
    if c.cx.remote.peer_access || pe == c.my_pe() {
        return Ok(());
    }
    let message = format_args!("PE {pe} is not reachable by loads and stores");
    Err(c.fault(
        message,
        "put each contiguous piece separately: NVSHMEM has no strided transfers over a network",
    ))
}

/// Returns every `stride`-th element, packed.
fn pick(bytes: &[u8], element: usize, stride: u64) -> Vec<u8> {
    let step = element.saturating_mul(stride as usize);
    bytes.chunks(step.max(1)).flat_map(|c| &c[..element.min(c.len())]).copied().collect()
}

fn iput(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [dst, src, _, _, count, pe, ..] = c.args;
    let to = c.pe(pe)?;
    reachable(c, to)?;
    let ([dst_stride, src_stride], [dst_bytes, src_bytes]) = strides(c)?;
    let element = c.f.ty.bytes();
    let dst = c.symmetric("dst", dst, dst_bytes)?;
    c.aligned("src", src, element)?;
    // The bytes between the elements are not read.
    for i in 0..count {
        if let Some(spot) = c.global("src", src + i * src_stride * element as u64, element as u64, false)? {
            c.watch(AccessKind::Read, spot, element);
        }
    }
    c.notes.silent = true;
    let span = c.load("src", src, src_bytes);
    c.notes.silent = false;
    let data = Data::Bytes(pick(&span?, element, src_stride));
    let step = dst_stride.wrapping_mul(element as u64);
    c.completes(Completed::Source);
    for i in 0..c.args[4] {
        c.watch(AccessKind::Write, c.cx.memory.heap(to, dst + i * step), element);
    }
    let put = Put { from: c.my_pe(), to, dst, step, element, data, signal: None, landing: None };
    c.cx.remote.wire.put(c.cx.memory, Late::Prompt, put);
    Ok(Step::Done(0))
}

fn iget(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [dst, src, _, _, _, pe, ..] = c.args;
    let to = c.pe(pe)?;
    reachable(c, to)?;
    let ([dst_stride, src_stride], [_, src_bytes]) = strides(c)?;
    let element = c.f.ty.bytes();
    let src = c.symmetric("src", src, src_bytes)?;
    c.aligned("dst", dst, element)?;
    for i in 0..c.args[4] {
        c.watch(AccessKind::Read, c.cx.memory.heap(to, src + i * src_stride * element as u64), element);
    }
    let data = pick(c.cx.memory.at(c.cx.memory.heap(to, src), src_bytes as usize), element, src_stride);
    let me = c.my_pe();
    c.cx.remote.wire.count(to, me, data.len());
    // The bytes between the elements do not change.
    for (i, piece) in data.chunks(element.max(1)).enumerate() {
        c.store("dst", dst + i as u64 * dst_stride * element as u64, piece)?;
    }
    Ok(Step::Done(0))
}
