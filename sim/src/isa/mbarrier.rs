//! mbarrier objects: initialisation, arrival, transaction counts, waiting.

use super::lift::custom;
use super::site::{Address, Issue, Site, issue};
use super::{Class, Family, row};
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::Space;
use crate::exec::asynchronous::World;
use crate::exec::asynchronous::mbarrier::{Changer, LIMIT, Mbarrier, Wrong};
use crate::exec::{Context, Fault, Flow, Op, Poll, Reg, Src};
use crate::memory::Spot;
use crate::model::lanes;
use crate::order::{Order, Scope};
use crate::types::Ty;

const SHARED: Class = ("ss", &["shared", "shared::cta"]);
const CLUSTER: Class = ("ss", &["shared", "shared::cta", "shared::cluster"]);
const SC: Class = ("scope", &["cta", "cluster"]);
const RELEASE: Class = ("sem", &["release", "relaxed"]);
const ACQUIRE: Class = ("sem", &["acquire", "relaxed"]);
const ARRIVE: Class = ("action", &["arrive", "arrive_drop"]);

pub(super) static FAMILY: Family = Family {
    title: "mbarrier",
    section: "9.7.13.15",
    rows: &[
        row("mbarrier.init{.ss}.b64", "[a], count", &[SHARED], init),
        row("mbarrier.inval{.ss}.b64", "[a]", &[SHARED], invalidate),
        row(
            "mbarrier.action{.sem}{.scope}{.ss}.b64",
            "[a], txCount",
            &[("action", &["expect_tx", "complete_tx"]), ("sem", &["relaxed"]), SC, CLUSTER],
            transaction,
        ),
        row(
            "mbarrier.action{.sem}{.scope}{.ss}.b64",
            "state, [a]{, count}",
            &[ARRIVE, RELEASE, SC, CLUSTER],
            |s| arrive(s, ArriveKind::Count),
        ),
        row(
            "mbarrier.action.expect_tx{.sem}{.scope}{.ss}.b64",
            "state, [a], txCount",
            &[ARRIVE, RELEASE, SC, CLUSTER],
            |s| arrive(s, ArriveKind::ExpectTx),
        ),
        row(
            "mbarrier.action.noComplete{.release}{.cta}{.ss}.b64",
            "state, [a], count",
            &[ARRIVE, SHARED],
            |s| arrive(s, ArriveKind::NoComplete),
        ),
        row("mbarrier.test_wait{.sem}{.scope}{.ss}.b64", "p, [a], state", &[ACQUIRE, SC, SHARED], |s| {
            wait(s, false)
        }),
        row(
            "mbarrier.test_wait.parity{.sem}{.scope}{.ss}.b64",
            "p, [a], parity",
            &[ACQUIRE, SC, SHARED],
            |s| wait(s, true),
        ),
        row(
            "mbarrier.try_wait{.sem}{.scope}{.ss}.b64",
            "p, [a], state{, hint}",
            &[ACQUIRE, SC, SHARED],
            |s| wait(s, false),
        ),
        row(
            "mbarrier.try_wait.parity{.sem}{.scope}{.ss}.b64",
            "p, [a], parity{, hint}",
            &[ACQUIRE, SC, SHARED],
            |s| wait(s, true),
        ),
        row("mbarrier.pending_count.b64", "d, state", &[], |s| {
            let (d, state) = (s.dst(0, Ty::B32)?, s.src(1, Ty::B64)?);
            Ok(super::lift::map1(d, state, Mbarrier::token_count))
        }),
    ],
};

/// Operations on an mbarrier are atomic in the whole cluster.
const ATOMIC: Order = Order { strong: Some(Scope::Cluster), ..Order::WEAK };

/// Changes an mbarrier for a lane, and returns the state before.
pub(super) fn change(
    cx: &mut Context<'_>,
    at: Spot,
    lane: usize,
    releases: bool,
    f: impl FnOnce(&mut Mbarrier) -> Result<(), Wrong>,
) -> Result<u64, Fault> {
    let by = if releases { Changer::Thread(cx.slot, lane) } else { Changer::Relaxed(cx.slot, lane) };
    let mut world = World { memory: cx.memory, check: cx.check.as_deref_mut() };
    cx.asynchronous.change(&mut world, at, by, f).map_err(|w| cx.wrong(at, lane, w))
}

fn init(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (address, space) = s.address(0, s.space())?;
    let count = s.src(1, Ty::B32)?;
    Ok(custom(move |cx| {
        let (addresses, count) = (address.lanes(cx), *cx.src(count));
        cx.watch_mbarrier(space, &addresses, AccessKind::Write, Order::WEAK);
        for lane in lanes(cx.active) {
            let at = cx.mbarrier(space, addresses[lane], lane)?;
            let made = match count[lane] {
                0 => Err((
                    "the mbarrier is initialised for 0 arrivals".into(),
                    "a phase can have 1 to 1048575 arrivals",
                )),
                n if n > LIMIT as u64 => Err((
                    format!("the mbarrier is initialised for {n} arrivals"),
                    "a phase can have 1 to 1048575 arrivals",
                )),
                n => cx.asynchronous.init(cx.memory, at, n as u32),
            };
            made.map_err(|w| cx.wrong(at, lane, w))?;
        }
        Ok(Flow::Next)
    }))
}

fn invalidate(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (address, space) = s.address(0, s.space())?;
    Ok(custom(move |cx| {
        let addresses = address.lanes(cx);
        cx.watch_mbarrier(space, &addresses, AccessKind::Write, Order::WEAK);
        for lane in lanes(cx.active) {
            let at = cx.mbarrier(space, addresses[lane], lane)?;
            cx.asynchronous.invalidate(cx.memory, at).map_err(|w| cx.wrong(at, lane, w))?;
        }
        Ok(Flow::Next)
    }))
}

/// Checks that semantics and scope occur together, or not at all.
fn check_order(s: &Site<'_, '_, '_>) -> Result<(), Issue> {
    if s.has("sem") == s.has("scope") {
        return Ok(());
    }
    issue(
        codes::UNKNOWN_MODIFIER,
        "an mbarrier instruction needs both semantics and scope, or neither",
        "write both, for example .release.cta",
    )
}

fn transaction(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    check_order(s)?;
    let (address, space) = s.address(0, s.space())?;
    let (count, completes) = (s.src(1, Ty::B32)?, s.get("action") == Some("complete_tx"));
    Ok(custom(move |cx| {
        let (addresses, count) = (address.lanes(cx), *cx.src(count));
        cx.watch_mbarrier(space, &addresses, AccessKind::Update, ATOMIC);
        for lane in lanes(cx.active) {
            let at = cx.mbarrier(space, addresses[lane], lane)?;
            let n = i64::from(count[lane] as u32);
            change(cx, at, lane, false, |b| b.expect(if completes { -n } else { n }))?;
        }
        Ok(Flow::Next)
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArriveKind {
    /// This number of threads arrives.
    Count,
    /// One thread arrives, and this number of bytes is expected.
    ExpectTx,
    /// This number of threads arrives without completing the phase.
    NoComplete,
}

struct Arrive {
    address: Address,
    space: Space,
    state: Option<Reg>,
    count: Option<Src>,
    kind: ArriveKind,
    drops: bool,
    releases: bool,
}

fn arrive(s: &mut Site<'_, '_, '_>, kind: ArriveKind) -> Result<Op, Issue> {
    if kind != ArriveKind::NoComplete {
        check_order(s)?;
    }
    let (address, space) = s.address(1, s.space())?;
    let state = if s.is_named(0, "_") { None } else { Some(s.dst(0, Ty::B64)?) };
    if state.is_some() && space == Space::Cluster {
        return issue(
            codes::BAD_OPERANDS,
            "an mbarrier of another CTA does not return a state",
            "write `_` for the state",
        );
    }
    let count = if s.operands.len() > 2 { Some(s.src(2, Ty::B32)?) } else { None };
    let (drops, releases) = (s.get("action") == Some("arrive_drop"), s.get("sem") != Some("relaxed"));
    Ok(custom({
        let a = Arrive { address, space, state, count, kind, drops, releases };
        move |cx| a.execute(cx)
    }))
}

impl Arrive {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let addresses = self.address.lanes(cx);
        let operand = self.count.map_or([1; 32], |c| *cx.src(c));
        cx.watch_mbarrier(self.space, &addresses, AccessKind::Update, ATOMIC);
        for lane in lanes(cx.active) {
            let at = cx.mbarrier(self.space, addresses[lane], lane)?;
            if self.state.is_some() && at.buffer != cx.shared {
                let help = "write `_` for the state";
                return Err(cx.wrong(
                    at,
                    lane,
                    ("an arrival at an mbarrier of another CTA does not return a state".into(), help),
                ));
            }
            if self.releases && at.buffer != cx.shared {
                cx.publish(Scope::Cluster);
            }
            let n = operand[lane] as u32;
            let (count, bytes) = if self.kind == ArriveKind::ExpectTx { (1, n.into()) } else { (n, 0) };
            let token = change(cx, at, lane, self.releases, |b| {
                b.expect(bytes)?;
                if self.drops {
                    b.drop_out(count)?;
                }
                b.arrive(count)?;
                match self.kind {
                    ArriveKind::NoComplete if b.pending == 0 && b.tx == 0 => Err((
                        "the arrival has .noComplete, but it completes the phase".into(),
                        "use the form without .noComplete",
                    )),
                    _ => Ok(()),
                }
            })?;
            if let Some(d) = self.state {
                cx.reg(d)[lane] = token;
            }
        }
        Ok(Flow::Next)
    }
}

/// Builds the test whether a phase is complete: that of a state, or that of a parity. `try_wait`
/// can block for some time; here both return at once, and a warp that asks again lets other warps
/// run.
fn wait(s: &mut Site<'_, '_, '_>, parity: bool) -> Result<Op, Issue> {
    check_order(s)?;
    let (address, space) = s.address(1, s.space())?;
    let p = s.pred_dst(0)?;
    let wanted = s.src(2, if parity { Ty::B32 } else { Ty::B64 })?;
    if s.operands.len() > 3 {
        s.src(3, Ty::B32)?;
    }
    let acquires = s.get("sem") != Some("relaxed");
    Ok(custom(move |cx| {
        let (addresses, wanted) = (address.lanes(cx), *cx.src(wanted));
        cx.watch_mbarrier(space, &addresses, AccessKind::Read, ATOMIC);
        let mut complete = 0;
        let mut waits = None;
        for lane in lanes(cx.active) {
            let at = cx.mbarrier(space, addresses[lane], lane)?;
            if at.buffer != cx.shared {
                let help = "let a thread of that CTA wait, and arrive at an mbarrier of this one";
                return Err(cx.wrong(
                    at,
                    lane,
                    ("a thread cannot wait at an mbarrier of another CTA".into(), help),
                ));
            }
            let b = cx.asynchronous.valid(cx.memory, at);
            let done = b.and_then(|b| match (parity, wanted[lane]) {
                (true, 0 | 1) => Ok(b.phase & 1 != wanted[lane]),
                (true, n) => Err((format!("the phase parity is {n}"), "use a parity of 0 or 1")),
                (false, token) => b.is_past(token),
            });
            if done.map_err(|w| cx.wrong(at, lane, w))? {
                complete |= 1 << lane;
                if let Some(d) = cx.check.as_deref_mut().filter(|_| acquires) {
                    cx.asynchronous.acquire(cx.memory, d, at, cx.slot, lane);
                }
            } else {
                waits = Some((at, wanted[lane]));
            }
        }
        cx.set_pred(p, complete);
        let Some((at, value)) = waits else { return Ok(Flow::Next) };
        let poll = Poll {
            pc: cx.pc,
            addr: at.at as u64,
            value,
            bytes: 8,
            shared: true,
            valid: true,
            fresh: true,
            mask: cx.active,
            mbarrier: Some(at),
        };
        *cx.poll = poll;
        Ok(Flow::Yield)
    }))
}
