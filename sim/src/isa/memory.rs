//! Data movement to and from memory: loads, stores, address conversion, cache control.

use super::classes::SCOPE;
use super::lift::{custom, map1};
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::check::AccessKind;
use crate::check::detector::Touch;
use crate::codes;
use crate::exec::access::{Space, from_le, put_le};
use crate::exec::defer::{AddressRange, Footprint};
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src};
use crate::memory::Window;
use crate::model::{Lanes, lanes};
use crate::num::{mask, sext};
use crate::order::Order;
use crate::types::{Ty, TypeKind};

const TYPES: &[&str] =
    &["b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64"];
const LD_SPACE: Class = (
    "ss",
    &[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
        "param::func",
    ],
);
const ST_SPACE: Class =
    ("ss", &["global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::func"]);
const VOLATILE_SPACE: Class = ("ss", &["global", "shared", "shared::cta", "shared::cluster", "local"]);
const SYNC_SPACE: Class = ("ss", &["global", "shared", "shared::cta", "shared::cluster"]);
const L1: Class = (
    "L1",
    &["L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"],
);
const L2: Class = ("L2", &["L2::evict_normal", "L2::evict_first", "L2::evict_last"]);
const PREFETCH: Class = ("prefetch", &["L2::64B", "L2::128B", "L2::256B"]);
const LD_COP: Class = ("cop", &["ca", "cg", "cs", "lu", "cv"]);
const ST_COP: Class = ("cop", &["wb", "cg", "cs", "wt"]);
const VEC: Class = ("vec", &["v2", "v4", "v8"]);
const TYPE: Class = ("type", TYPES);
const SCOPES: Class = ("scope", SCOPE);

pub(super) static FAMILY: Family = Family {
    title: "Loads, stores and addresses",
    section: "9.7.9",
    rows: &[
        row(
            "ld{.weak}{.ss}{.cop}{.L1}{.L2}{.L2::cache_hint}{.prefetch}{.vec}.type",
            "d, [a]{, policy}",
            &[LD_SPACE, LD_COP, L1, L2, PREFETCH, VEC, TYPE],
            load,
        ),
        row("ld.volatile{.ss}{.prefetch}{.vec}.type", "d, [a]", &[VOLATILE_SPACE, PREFETCH, VEC, TYPE], load),
        row(
            "ld.sem.scope{.ss}{.L1}{.L2}{.L2::cache_hint}{.prefetch}{.vec}.type",
            "d, [a]{, policy}",
            &[("sem", &["relaxed", "acquire"]), SCOPES, SYNC_SPACE, L1, L2, PREFETCH, VEC, TYPE],
            load,
        ),
        row("ld.mmio.relaxed.sys{.ss}.type", "d, [a]", &[("ss", &["global"]), TYPE], load),
        row(
            "ld.global{.cop}.nc{.L1}{.L2}{.L2::cache_hint}{.prefetch}{.vec}.type",
            "d, [a]{, policy}",
            &[("cop", &["ca", "cg", "cs"]), L1, L2, PREFETCH, VEC, TYPE],
            load,
        ),
        row("ldu{.ss}{.vec}.type", "d, [a]", &[("ss", &["global"]), ("vec", &["v2", "v4"]), TYPE], load),
        row(
            "st{.weak}{.ss}{.cop}{.L1}{.L2}{.L2::cache_hint}{.vec}.type",
            "[a], b{, policy}",
            &[ST_SPACE, ST_COP, L1, L2, VEC, TYPE],
            store,
        ),
        row("st.volatile{.ss}{.vec}.type", "[a], b", &[VOLATILE_SPACE, VEC, TYPE], store),
        row(
            "st.sem.scope{.ss}{.L1}{.L2}{.L2::cache_hint}{.vec}.type",
            "[a], b{, policy}",
            &[("sem", &["relaxed", "release"]), SCOPES, SYNC_SPACE, L1, L2, VEC, TYPE],
            store,
        ),
        row("st.mmio.relaxed.sys{.ss}.type", "[a], b", &[("ss", &["global"]), TYPE], store),
        row("cvta.space.size", "d, a", &[CVTA_SPACE, SIZE], cvta),
        row("cvta.to.space.size", "d, a", &[CVTA_SPACE, SIZE], cvta),
        row("isspacep.space", "p, a", &[CVTA_SPACE], isspacep),
        row(
            "prefetch{.ss}.level",
            "[a]",
            &[("ss", &["global", "local"]), ("level", &["L1", "L2"])],
            prefetch,
        ),
        row("prefetch.global.level", "[a]", &[("level", &["L2::evict_last", "L2::evict_normal"])], prefetch),
        row("prefetchu.L1", "[a]", &[], prefetch),
        row("applypriority{.global}.L2::evict_normal", "[a], size", &[], |s| match s.immediate(1)? {
            128 => prefetch(s),
            n => issue(codes::BAD_OPERANDS, format!("the size is {n} bytes"), "use a size of 128 bytes"),
        }),
        row(
            "createpolicy.fractional.primary{.secondary}.b64",
            "d{, fraction}",
            &[("primary", PRIORITY), ("secondary", PRIORITY)],
            policy,
        ),
        row("createpolicy.cvt.L2.b64", "d, property", &[], policy),
    ],
};

const CVTA_SPACE: Class = (
    "space",
    &["const", "global", "local", "shared", "shared::cta", "shared::cluster", "param", "param::entry"],
);
const SIZE: Class = ("size", &["u64"]);
const PRIORITY: &[&str] = &["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];

/// Checks that a vector form has at most 32 bytes.
fn vector_bytes(s: &Site<'_, '_, '_>, ty: Ty) -> Result<usize, Issue> {
    let bytes = s.vec_count() * ty.bytes();
    if bytes > 32 || s.get("vec") == Some("v8") && ty.bytes() != 4 {
        return issue(
            codes::UNKNOWN_MODIFIER,
            "a vector access can have at most 32 bytes (.v8 of 4-byte types, .v4 of 8-byte types)",
            "",
        );
    }
    Ok(bytes)
}

/// Checks cache modifiers, which have no effect, against space and size.
fn check_hints(s: &Site<'_, '_, '_>, space: Space, bytes: usize) -> Result<(), Issue> {
    let eviction = s.has("L1") || s.has("L2");
    let wrong = if s.has("L2") && bytes != 32 {
        "`.L2::evict_*` needs a 32-byte access (.v8 of 4 bytes, .v4 of 8)"
    } else if eviction && s.has("cop") {
        "an access cannot have both a cache operator and an eviction priority"
    } else if (eviction || s.has("L2::cache_hint") || s.has("prefetch"))
        && !matches!(space, Space::Global | Space::Generic)
    {
        "eviction priorities and cache hints apply to global addresses"
    } else {
        return Ok(());
    };
    issue(codes::UNKNOWN_MODIFIER, wrong, "")
}

struct Load {
    space: Space,
    address: Address,
    element: usize,
    bytes: usize,
    /// The registers and, for signed types, the sign extension: element bits and register bits.
    dst: Vec<Reg>,
    extend: Option<(u32, u64)>,
    order: Order,
}

fn load(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ty = s.ty("type")?;
    let bytes = vector_bytes(s, ty)?;
    let given = if s.has("global") { Space::Global } else { s.space() };
    check_hints(s, given, bytes)?;
    let (address, space) = s.address(1, given)?;
    let dst = s.vector_dst(0, s.vec_count(), ty, true)?;
    s.cache_hint(2)?;
    let width = dst.iter().map(|d| d.1).max().unwrap_or(64);
    let extend = (ty.kind == TypeKind::Signed && width > ty.bits).then_some((ty.bits, mask(width)));
    let dst = dst.into_iter().map(|d| d.0).collect();
    Ok(Box::new(Load { space, address, element: ty.bytes(), bytes, dst, extend, order: s.order() }))
}

impl Operation for Load {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let may_wait = !self.order.acquire && matches!(self.space, Space::Global | Space::Generic);
        if may_wait && cx.defer(|cx| self.uses(cx)) {
            return Ok(Flow::Next);
        }
        let addresses = self.address.lanes(cx);
        cx.watch(self.space, &addresses, self.bytes, AccessKind::Read, self.order);
        let mut w = Window::empty();
        let mut data = [0; 32];
        for lane in lanes(cx.active) {
            let data = &mut data[..self.bytes];
            cx.read(self.space, addresses[lane], data, lane, &mut w)?;
            for (d, element) in self.dst.iter().zip(data.chunks_exact(self.element)) {
                let v = from_le(element);
                cx.reg(*d)[lane] = match self.extend {
                    None => v,
                    Some((bits, register)) => sext(v, bits) as u64 & register,
                };
            }
        }
        let first = cx.active.trailing_zeros() as usize;
        let value = self.dst.first().map_or(0, |d| cx.regs[d.0 as usize][first]);
        let repeated = cx.note_read(self.space, addresses[first], value, self.element);
        Ok(if repeated && self.order.strong.is_some() { Flow::Yield } else { Flow::Next })
    }

    fn footprint(&self, cx: &Context<'_>) -> Option<Footprint> {
        (!self.order.acquire).then(|| self.uses(cx))
    }
}

impl Load {
    fn uses(&self, cx: &Context<'_>) -> Footprint {
        Footprint {
            reads: self.address.register().into_iter().collect(),
            writes: self.dst.iter().copied().collect(),
            reach: AddressRange::of(self.space, &self.address.lanes(cx), self.bytes, cx.active),
        }
    }
}

struct Store {
    space: Space,
    address: Address,
    element: usize,
    bytes: usize,
    src: Vec<Src>,
    order: Order,
}

fn store(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ty = s.ty("type")?;
    let bytes = vector_bytes(s, ty)?;
    check_hints(s, s.space(), bytes)?;
    let (address, space) = s.address(0, s.space())?;
    let src = s.vector_src(1, s.vec_count(), ty, true)?;
    s.cache_hint(2)?;
    Ok(Box::new(Store { space, address, element: ty.bytes(), bytes, src, order: s.order() }))
}

impl Operation for Store {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let addresses = self.address.lanes(cx);
        let mut w = Window::empty();
        let mut collisions = 0;
        if cx.check.is_some() {
            let same = self.unchanged(cx, &addresses, &mut w);
            let what = Touch { pc: cx.pc, kind: AccessKind::Write, order: self.order, same };
            collisions = cx.watch_lanes(self.space, &addresses, self.bytes, what);
        }
        // A store that releases something is not delayed, so that its release is visible together
        // with it.
        let delayable = !self.order.release && !cx.releases(&self.order);
        if let Some(scope) = self.order.strong.filter(|_| self.order.release) {
            cx.publish(scope);
        }
        let (mut data, mut old) = ([0; 32], [0; 32]);
        for lane in lanes(cx.active) {
            self.gather(cx, lane, &mut data);
            if collisions >> lane & 1 != 0 {
                // Several lanes that write the same value do not race, since there is one result.
                let old = &mut old[..self.bytes];
                cx.read(self.space, addresses[lane], old, lane, &mut w)?;
                if *old != data[..self.bytes] {
                    cx.collide(self.space, &addresses, lane, self.bytes, self.order);
                }
            }
            if delayable {
                cx.post(self.space, addresses[lane], &data[..self.bytes], lane, &mut w)?;
            } else {
                cx.write(self.space, addresses[lane], &data[..self.bytes], lane, &mut w)?;
            }
        }
        Ok(Flow::Next)
    }

    fn footprint(&self, cx: &Context<'_>) -> Option<Footprint> {
        let sources = self.src.iter().filter_map(|s| s.register());
        let reach = AddressRange::of(self.space, &self.address.lanes(cx), self.bytes, cx.active);
        let reads = self.address.register().into_iter().chain(sources).collect();
        (!self.order.release).then(|| Footprint { reads, reach, ..Footprint::default() })
    }
}

impl Store {
    /// The bytes that a lane stores.
    #[inline]
    fn gather(&self, cx: &Context<'_>, lane: usize, data: &mut [u8; 32]) {
        for (src, element) in self.src.iter().zip(data.chunks_exact_mut(self.element)) {
            put_le(element, cx.src(*src)[lane]);
        }
    }

    /// Returns the lanes that store the value that is already there and that no pending store would
    /// replace.
    fn unchanged(&self, cx: &mut Context<'_>, addresses: &Lanes, w: &mut Window) -> u32 {
        let mut data = [0; 32];
        let mut same = 0;
        for lane in lanes(cx.active) {
            // An address that is out of bounds is reported by the store itself.
            let Some(place) = cx.place(self.space, addresses[lane], self.bytes, lane, w) else { continue };
            self.gather(cx, lane, &mut data);
            if cx.memory.holds(place, &data[..self.bytes]) {
                same |= 1 << lane;
            }
        }
        same
    }
}

fn cvta_space(s: &Site<'_, '_, '_>) -> Space {
    match s.get("space") {
        Some("shared" | "shared::cta" | "shared::cluster") => Space::Shared,
        Some("local") => Space::Local,
        Some("param" | "param::entry") => Space::Param,
        _ => Space::Global,
    }
}

fn cvta(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let ty = s.ty("size")?;
    let window = cvta_space(s).window();
    let a = if s.has("to") { s.src(1, ty)? } else { s.src_any(1, ty)? };
    let d = s.dst(0, ty)?;
    // Windows are disjoint in their upper halves, so adding and removing them is a matter of bits.
    Ok(if s.has("to") {
        map1(d, a, move |v| if window == 0 { v } else { v.wrapping_sub(window) })
    } else {
        map1(d, a, move |v| v.wrapping_add(window))
    })
}

fn isspacep(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let space = cvta_space(s);
    let (constant, cluster) = (s.get("space") == Some("const"), s.get("space") == Some("shared::cluster"));
    let (p, a) = (s.pred_dst(0)?, s.src(1, Ty::B64)?);
    Ok(custom(move |cx| {
        let a = *cx.src(a);
        let bits = lanes(cx.active).fold(0, |bits, l| {
            let found = Space::of_generic(a[l]).0;
            let is = !constant && (found == space || cluster && found.is_shared());
            bits | u32::from(is) << l
        });
        cx.set_pred(p, bits);
        Ok(Flow::Next)
    }))
}

/// Builds a hint: the operands are checked, and nothing happens.
fn prefetch(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    s.address(0, s.space())?;
    Ok(custom(|_| Ok(Flow::Next)))
}

/// Builds a cache policy, which is only a hint. Its value here is 0.
fn policy(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let d = s.dst(0, Ty::B64)?;
    if s.operands.len() > 1 {
        s.src(1, if s.has("cvt") { Ty::B64 } else { Ty::F32 })?;
    }
    Ok(custom(move |cx| {
        cx.splat(d, 0);
        Ok(Flow::Next)
    }))
}
