//! Tensor copies (TMA), and the tensor maps that describe them.

use super::bulk::{multicast, same_cta};
use super::lift::custom;
use super::reduce::combine_bulk;
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::Space;
use crate::exec::asynchronous::tensor::{BYTES, FIELDS, Field, Part, TensorMap};
use crate::exec::asynchronous::{Completion, Reduction, Segment, Transfer};
use crate::exec::{Context, Fault, Flow, Op, Operation, Src, fault};
use crate::memory::{Spot, Window};
use crate::model::lanes;
use crate::order::{Fence, Order, Scope};
use crate::types::Ty;
use std::sync::Arc;

const DIM: Class = ("dim", &["1d", "2d", "3d", "4d", "5d"]);
const TO_SHARED: Class = ("ss", &["shared::cluster", "shared::cta"]);
const OP: Class = ("op", &["add", "min", "max", "inc", "dec", "and", "or", "xor"]);
const SPACE: Class = ("ss", &["global", "shared::cta"]);
const SC: Class = ("scope", super::classes::SCOPE);

pub(super) static FAMILY: Family = Family {
    title: "Tensor copies and tensor maps",
    section: "9.7.9.25.5, 9.7.9.26 to 9.7.9.28",
    rows: &[
        row(
            "cp.async.bulk.tensor.dim.ss.global{.tile}.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}",
            "[d], [map, coords], [mbar]{, ctaMask}{, policy}",
            &[DIM, TO_SHARED],
            load,
        ),
        row(
            "cp.async.bulk.tensor.dim.global.shared::cta{.tile}.bulk_group{.L2::cache_hint}",
            "[map, coords], [a]{, policy}",
            &[DIM],
            store,
        ),
        row(
            "cp.reduce.async.bulk.tensor.dim.global.shared::cta.op{.tile}.bulk_group{.L2::cache_hint}",
            "[map, coords], [a]{, policy}",
            &[DIM, OP],
            store,
        ),
        row(
            "cp.async.bulk.prefetch.tensor.dim.L2.global{.tile}{.L2::cache_hint}",
            "[map, coords]{, policy}",
            &[DIM],
            |s| {
                tensor(s, 0)?;
                s.cache_hint(1)?;
                Ok(custom(|_| Ok(Flow::Next)))
            },
        ),
        row("prefetch{.ss}.tensormap", "[a]", &[("ss", &["const", "param"])], |s| {
            s.address(0, s.space())?;
            Ok(custom(|_| Ok(Flow::Next)))
        }),
        row(
            "tensormap.replace.tile.field{.ss}.b1024.type",
            "[a], b",
            &[
                (
                    "field",
                    &[
                        "global_address",
                        "rank",
                        "elemtype",
                        "interleave_layout",
                        "swizzle_mode",
                        "fill_mode",
                        "swizzle_atomicity",
                    ],
                ),
                SPACE,
                ("type", &["b32", "b64"]),
            ],
            replace,
        ),
        row(
            "tensormap.replace.tile.field{.ss}.b1024.type",
            "[a], ord, b",
            &[
                ("field", &["box_dim", "global_dim", "global_stride", "element_stride"]),
                SPACE,
                ("type", &["b32", "b64"]),
            ],
            replace,
        ),
        row(
            "tensormap.cp_fenceproxy.global.ss.tensormap::generic.release.scope.sync.aligned",
            "[d], [a], size",
            &[("ss", &["shared", "shared::cta"]), SC],
            publish,
        ),
        row("fence.proxy.tensormap::generic.release.scope", "", &[SC], |s| {
            let scope = s.get("scope").and_then(Scope::parse).unwrap_or(Scope::Sys);
            Ok(custom(move |cx| {
                cx.watch_fence(Fence::release(scope));
                Ok(Flow::Next)
            }))
        }),
        row("fence.proxy.tensormap::generic.acquire.scope", "[a], size", &[SC], |s| {
            s.address(0, Space::Generic)?;
            whole(s, 1)?;
            let scope = s.get("scope").and_then(Scope::parse).unwrap_or(Scope::Sys);
            Ok(custom(move |cx| {
                cx.watch_fence(Fence::acquire(scope));
                Ok(Flow::Next)
            }))
        }),
    ],
};

/// Checks a size operand, which must be that of a tensor map.
fn whole(s: &Site<'_, '_, '_>, i: usize) -> Result<(), Issue> {
    match s.immediate(i)? {
        128 => Ok(()),
        n => issue(
            codes::BAD_OPERANDS,
            format!("the size is {n} bytes"),
            "use the size of a tensor map, 128 bytes",
        ),
    }
}

/// A box of a tensor: the map's address and the coordinates.
struct Tensor {
    map: Address,
    space: Space,
    coordinates: Vec<Src>,
}

fn tensor(s: &mut Site<'_, '_, '_>, i: usize) -> Result<Tensor, Issue> {
    let (map, space, coordinates) = s.tensor(i)?;
    let rank = s.text("dim").trim_end_matches('d').parse().unwrap_or(0);
    if coordinates.len() != rank {
        let message = format!(
            "the instruction has {} coordinates for a tensor of {rank} dimensions",
            coordinates.len()
        );
        return issue(
            codes::BAD_OPERANDS,
            message,
            "write [tensorMap, {c0, c1, ...}], with the innermost coordinate first",
        );
    }
    Ok(Tensor { map, space, coordinates })
}

impl Tensor {
    /// The map in a lane.
    fn map(&self, cx: &mut Context<'_>, lane: usize) -> Result<TensorMap, Fault> {
        let addr = self.map.lanes(cx)[lane];
        let mut bytes = [0; BYTES];
        let mut w = Window::empty();
        for (i, piece) in bytes.chunks_exact_mut(16).enumerate() {
            cx.read(self.space, addr.wrapping_add(16 * i as u64), piece, lane, &mut w)?;
        }
        let wrong = |message: String| {
            let help =
                "create the tensor map with TensorMap::encode, or with tensormap.replace from 128 zero bytes";
            fault(codes::ASYNCHRONOUS, lane, format!("tensor map at {addr:#x}: {message}"), help)
        };
        let map = TensorMap::decode(&bytes).map_err(wrong)?;
        let (rank, dims) = (self.coordinates.len(), map.dims.len());
        if rank != dims {
            return Err(wrong(format!("it has {dims} dimensions, but the copy has {rank}")));
        }
        Ok(map)
    }

    /// The parts of the box in a lane; the box begins at a shared offset.
    fn parts(
        &self,
        cx: &Context<'_>,
        map: &TensorMap,
        lane: usize,
        shared: usize,
        stores: bool,
    ) -> Result<Vec<Part>, Fault> {
        let coordinates: Vec<i32> = self.coordinates.iter().map(|&c| cx.src(c)[lane] as i32).collect();
        // The manual does not mention it, but an H200 reports "illegal instruction".
        let (first, size) = (i64::from(coordinates[0]), map.element_bytes() as i64);
        if first * size % 16 != 0 {
            let message =
                format!("a box begins at innermost coordinate {first}, {} bytes, in a tensor", first * size);
            return Err(fault(
                codes::ASYNCHRONOUS,
                lane,
                message,
                "begin the box at a multiple of 16 bytes in each row",
            ));
        }
        if stores && coordinates.iter().any(|c| *c < 0) {
            let message = format!("a store writes a box at negative coordinates, {coordinates:?}");
            return Err(fault(
                codes::ASYNCHRONOUS,
                lane,
                message,
                "use negative coordinates only in loads, as the H200 requires",
            ));
        }
        Ok(map.parts(&coordinates, shared, stores))
    }

    /// The segments of a copy between the tensor and shared memory.
    fn segments(
        cx: &Context<'_>,
        parts: &[Part],
        buffer: usize,
        to_shared: bool,
        lane: usize,
    ) -> Result<Vec<Segment>, Fault> {
        let mut out = Vec::with_capacity(parts.len());
        for p in parts {
            let shared = Spot { buffer, at: p.shared };
            let global = match p.global {
                Some(a) => Some(cx.spot(Space::Global, a, (p.len, 1), !to_shared, lane)?),
                None => None,
            };
            match (to_shared, global) {
                (true, from) => out.push(Segment { from, to: shared, len: p.len }),
                (false, Some(to)) => out.push(Segment { from: Some(shared), to, len: p.len }),
                // Elements outside the tensor are not written.
                (false, None) => {}
            }
        }
        Ok(out)
    }
}

struct Load {
    dst: (Address, Space),
    tensor: Tensor,
    mbar: (Address, Space),
    mask: Option<Src>,
}

fn load(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let space = s.space();
    let (dst, tensor, mbar) = (s.address(0, space)?, tensor(s, 1)?, s.address(2, space)?);
    let mask = match s.has("multicast::cluster") {
        true if space != Space::Cluster => {
            return issue(codes::UNKNOWN_MODIFIER, "a multicast to `.shared::cta`", "");
        }
        true => Some(s.src(3, Ty::parse("u16").unwrap_or(Ty::B32))?),
        false => None,
    };
    s.cache_hint(3 + usize::from(mask.is_some()))?;
    Ok(Box::new(Load { dst, tensor, mbar, mask }))
}

impl Operation for Load {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (dst, mbar) = (self.dst.0.lanes(cx), self.mbar.0.lanes(cx));
        for lane in lanes(cx.active) {
            let map = self.tensor.map(cx, lane)?;
            let to = cx.spot(self.dst.1, dst[lane], (map.box_bytes(), 128), true, lane)?;
            let parts = self.tensor.parts(cx, &map, lane, to.at, false)?;
            let at = cx.mbarrier(self.mbar.1, mbar[lane], lane)?;
            same_cta(to, at, lane)?;
            for (to, at) in multicast(cx, self.mask, to, at, lane)? {
                let segments = Tensor::segments(cx, &parts, to.buffer, true, lane)?;
                let t = Transfer { fill: map.fill(), convert: map.convert(), ..Transfer::new(segments) };
                cx.issue(lane, t, Completion::Mbarrier(at))?;
            }
        }
        Ok(Flow::Next)
    }
}

fn store(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let tensor = tensor(s, 0)?;
    let (src, space) = s.address(1, Space::Shared)?;
    s.cache_hint(2)?;
    let op = s.get("op");
    Ok(custom(move |cx| {
        let src = src.lanes(cx);
        for lane in lanes(cx.active) {
            let map = tensor.map(cx, lane)?;
            let from = cx.spot(space, src[lane], (map.box_bytes(), 128), false, lane)?;
            let parts = tensor.parts(cx, &map, lane, from.at, true)?;
            let segments = Tensor::segments(cx, &parts, from.buffer, false, lane)?;
            let reduction = op.map(|op| reduction(op, &map, lane)).transpose()?;
            let t = Transfer { reduction, ..Transfer::new(segments) };
            cx.issue(lane, t, Completion::Group)?;
        }
        Ok(Flow::Next)
    }))
}

/// The reduction of a tensor's elements, whose type is known only at run time.
fn reduction(op: &str, map: &TensorMap, lane: usize) -> Result<Arc<Reduction>, Fault> {
    let name = map.type_name();
    let float = matches!(name, "f16" | "bf16" | "f32" | "f64");
    let bits = matches!(op, "and" | "or" | "xor");
    let possible = match op {
        "add" => name != "u8" && name != "u16",
        "min" | "max" => matches!(name, "u32" | "s32" | "u64" | "s64" | "f16" | "bf16"),
        "inc" | "dec" => name == "u32",
        _ => bits && !float && name != "u8" && name != "u16",
    };
    let combine = Ty::parse(name).filter(|_| possible).map(|ty| combine_bulk(op, ty));
    match combine {
        Some(Ok(combine)) => {
            Ok(Arc::new(Reduction { combine, element: map.element_bytes(), of_system: false }))
        }
        _ => {
            let message = format!("`.{op}` of a tensor of {name}");
            Err(fault(
                codes::ASYNCHRONOUS,
                lane,
                message,
                "use an operation and type that cp.reduce.async.bulk has",
            ))
        }
    }
}

/// Writes a field of a tensor map.
fn replace(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let name = s.text("field");
    let Some(field) = FIELDS.iter().find(|f| f.name == name) else {
        return issue(codes::UNKNOWN_MODIFIER, format!("`.{name}` is not a field"), "");
    };
    let ty = s.ty("type")?;
    if (ty.bits == 64) != (field.bytes == 8) {
        return issue(
            codes::UNKNOWN_MODIFIER,
            format!("`.{name}` with `.{}`", s.text("type")),
            "addresses and strides are .b64",
        );
    }
    let literal =
        matches!(name, "elemtype" | "interleave_layout" | "swizzle_mode" | "fill_mode" | "swizzle_atomicity");
    if literal {
        s.immediate(1)?;
    }
    let (address, space) = s.address(0, s.space())?;
    let ordinal = match s.operands.len() {
        3 => s.immediate(1)? as usize,
        _ => 0,
    };
    if ordinal >= field.count {
        let message = format!("`.{name}` has no entry {ordinal}");
        return issue(codes::BAD_OPERANDS, message, format!("use an entry from 0 to {}", field.count - 1));
    }
    let value = s.src(s.operands.len() - 1, ty)?;
    Ok(custom(move |cx| write_field(cx, field, ordinal, (&address, space), value)))
}

fn write_field(
    cx: &mut Context<'_>,
    field: &Field,
    ordinal: usize,
    (address, space): (&Address, Space),
    value: Src,
) -> Result<Flow, Fault> {
    let (base, value) = (address.lanes(cx), *cx.src(value));
    let at = base.map(|a| a.wrapping_add(field.at(ordinal) as u64));
    cx.watch(space, &at, field.bytes, AccessKind::Write, Order::WEAK);
    let mut w = Window::empty();
    for lane in lanes(cx.active) {
        // The whole map is accessed, so it must be in bounds and aligned.
        cx.locate(space, base[lane], BYTES, lane)?;
        if field.bytes == 1 && value[lane] > 0xff {
            let message = format!("{} is not a value of `.{}` of a tensor map", value[lane], field.name);
            return Err(fault(codes::ASYNCHRONOUS, lane, message, "use one of the values in the PTX manual"));
        }
        cx.write(space, at[lane], &value[lane].to_le_bytes()[..field.bytes], lane, &mut w)?;
    }
    Ok(Flow::Next)
}

/// Copies a tensor map from shared to global memory, for other threads' tensor copies.
fn publish(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ((dst, _), (src, _)) = (s.address(0, Space::Global)?, s.address(1, Space::Shared)?);
    whole(s, 2)?;
    let scope = s.get("scope").and_then(Scope::parse).unwrap_or(Scope::Sys);
    Ok(custom(move |cx| {
        if cx.active != cx.live {
            return Ok(Flow::Converge(cx.live));
        }
        let (dst, src) = (dst.lanes(cx), src.lanes(cx));
        let lane = cx.active.trailing_zeros() as usize;
        if let Some(l) = lanes(cx.active).find(|&l| dst[l] != dst[lane] || src[l] != src[lane]) {
            let help = "copy the same tensor map in all threads of the warp";
            return Err(fault(
                codes::UNDEFINED,
                l,
                "the addresses differ between the threads of a warp",
                help,
            ));
        }
        let all = std::mem::replace(&mut cx.active, 1 << lane);
        let mut data = [0; BYTES];
        let (mut from, mut to) = (Window::empty(), Window::empty());
        for (i, piece) in data.chunks_exact_mut(16).enumerate() {
            let [a, b] = [&src, &dst].map(|list| list.map(|a| a.wrapping_add(16 * i as u64)));
            cx.watch(Space::Shared, &a, 16, AccessKind::Read, Order::WEAK);
            cx.read(Space::Shared, a[lane], piece, lane, &mut from)?;
            cx.watch(Space::Global, &b, 16, AccessKind::Write, Order::WEAK);
            cx.write(Space::Global, b[lane], piece, lane, &mut to)?;
        }
        cx.active = all;
        cx.watch_fence(Fence::release(scope));
        Ok(Flow::Next)
    }))
}
