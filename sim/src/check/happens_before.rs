//! How two accesses are related (PTX ISA, memory consistency model): by causality order, by moral strength, and by whether
//! one of them stands for the other in later comparisons.

use super::clock::{Clock, Known, Topology};
use super::shadow::Record;
use super::sync::Threads;
use super::{AccessKind, Agent};

/// Whether an access happens before one that lane `lane` of `later` makes and that knows `clock`.
///
/// `half` is the effect of the earlier access on memory. A read has ended as soon as it has read,
/// while a write must also be visible to the later access's proxy.
pub(super) fn happens_before(
    threads: &Threads,
    earlier: &Record,
    half: AccessKind,
    (later, lane): (&Record, usize),
    clock: &Clock,
) -> bool {
    let same_warp = earlier.warp == later.warp || earlier.warp == threads.warp(later.warp);
    // A lane knows its own accesses.
    let others = if same_warp { earlier.lanes & !(1 << lane) } else { earlier.lanes };
    let covers = |known: &Known, lanes: u32| known.covers(threads, earlier.warp, lanes, earlier.time);
    let same_operation = others == 0 && earlier.time == later.time;
    let read = half == AccessKind::Read;
    match (earlier.agent, later.agent) {
        // Writes of threads must have passed a proxy fence; reads leave nothing behind that the async proxy could miss.
        (Agent::Thread, Agent::Async) if !read => covers(&clock.proxied, earlier.lanes),
        (Agent::Copy, Agent::Async) if !read => covers(&clock.copied_proxied, earlier.lanes),
        (Agent::Thread, _) => others == 0 || covers(&clock.seen, others),
        (Agent::Remote, _) => {
            same_operation
                || others == 0 && earlier.strong.is_some()
                || read && covers(&clock.sent, earlier.lanes)
                || covers(&clock.delivered, earlier.lanes)
        }
        (Agent::Copy | Agent::Async, _) => {
            same_operation
                || read && covers(&clock.drained, earlier.lanes)
                || covers(&clock.copied, earlier.lanes)
        }
    }
}

/// Whether both accesses are strong and the scope of each includes the other's thread.
pub(super) fn morally_strong(threads: &Threads, a: &Record, b: &Record) -> bool {
    use crate::order::Scope::Sys;
    match (a.strong, b.strong) {
        (Some(Sys), Some(Sys)) => true,
        (Some(x), Some(y)) => threads.includes(x, a.warp, b.warp) && threads.includes(y, b.warp, a.warp),
        _ => false,
    }
}

/// Whether each access that races with `older` also races with `newer`, where `older` happens
/// before `newer`. Then `older` need not be remembered.
///
/// A read cannot replace a write, and a strong access cannot replace a weak one. Of two strong
/// accesses the newer one must not have the wider scope. If the answer must be `exact`, both must
/// be of one CTA, since an access of narrow scope may be strong enough for only one of them.
#[inline]
pub(super) fn stands_for(
    threads: &Threads,
    (newer, kind): (&Record, AccessKind),
    (older, old_kind): (&Record, AccessKind),
    exact: bool,
) -> bool {
    let one_cta = || newer.warp == older.warp || threads.cta(newer.warp) == threads.cta(older.warp);
    (kind.writes() || !old_kind.writes())
        && match (newer.strong, older.strong) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(new), Some(old)) => new <= old && (!exact || one_cta()),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sync::CtaInfo;
    use crate::model::{CtaId, WarpId};
    use crate::order::{Order, Scope};

    /// PE 0 has CTAs 0 (warps 0 and 1) and 1 (warp 2), PE 1 has CTA 2 (warp 3).
    fn threads() -> Threads {
        let mut threads = Threads::default();
        for (number, pe) in [(0, 0), (1, 0), (2, 1)] {
            let (cluster, first_warp) = (CtaId(number), WarpId(0));
            threads.ctas.push(CtaInfo { grid: 0, pe, ctaid: [number, 0, 0], cluster, first_warp });
        }
        for cta in [0, 0, 1, 2] {
            threads.warp_cta.push(CtaId(cta));
        }
        threads
    }

    fn record(warp: u32, lanes: u32, agent: Agent, strong: Option<Scope>) -> Record {
        Record {
            bytes: 0b1111,
            ..Record::new(10, WarpId(warp), 0, lanes, agent, &Order { strong, ..Order::WEAK })
        }
    }

    /// The knowledge that the later thread, lane 0 of warp 1, has of warp 2 up to the time of the
    /// earlier access.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Knows {
        Nothing,
        Seen,
        Proxied,
        Copied,
        CopiedProxied,
        Drained,
        Sent,
        Delivered,
    }

    #[test]
    fn causality_by_agent_and_knowledge() {
        use Agent::{Async, Copy, Remote, Thread};
        use Knows::*;
        // The agents of the earlier and the later access, then the knowledge that makes an earlier
        // write visible, and that which orders an earlier read.
        let table: &[(Agent, Agent, &[Knows], &[Knows])] = &[
            (Thread, Thread, &[Seen], &[Seen]),
            (Thread, Copy, &[Seen], &[Seen]),
            (Thread, Remote, &[Seen], &[Seen]),
            (Thread, Async, &[Proxied], &[Seen]),
            (Copy, Thread, &[Copied], &[Copied, Drained]),
            (Copy, Async, &[CopiedProxied], &[Copied, Drained]),
            (Async, Thread, &[Copied], &[Copied, Drained]),
            (Async, Async, &[Copied], &[Copied, Drained]),
            (Remote, Thread, &[Delivered], &[Delivered, Sent]),
            (Remote, Remote, &[Delivered], &[Delivered, Sent]),
        ];
        let threads = threads();
        let all = [Nothing, Seen, Proxied, Copied, CopiedProxied, Drained, Sent, Delivered];
        for (earlier, later, writes, reads) in table {
            for knows in all {
                let mut clock = Clock::default();
                let known = match knows {
                    Nothing => None,
                    Seen => Some(&mut clock.seen),
                    Proxied => Some(&mut clock.proxied),
                    Copied => Some(&mut clock.copied),
                    CopiedProxied => Some(&mut clock.copied_proxied),
                    Drained => Some(&mut clock.drained),
                    Sent => Some(&mut clock.sent),
                    Delivered => Some(&mut clock.delivered),
                };
                known.into_iter().for_each(|k| k.raise(WarpId(2), 1, false, 10));
                let (a, b) =
                    (record(2, 1, *earlier, None), Record { time: 20, ..record(1, 1, *later, None) });
                for (half, shown_by) in [(AccessKind::Write, writes), (AccessKind::Read, reads)] {
                    let before = happens_before(&threads, &a, half, (&b, 0), &clock);
                    assert_eq!(
                        before,
                        shown_by.contains(&knows),
                        "{earlier:?} {half:?}, {later:?}: {knows:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn program_order_is_of_one_lane() {
        let (threads, nothing) = (threads(), Clock::default());
        let later = Record { time: 20, ..record(1, 1, Agent::Thread, None) };
        for (warp, lanes, before) in [(1, 1, true), (1, 0b10, false), (1, 0b11, false), (0, 1, false)] {
            let earlier = record(warp, lanes, Agent::Thread, None);
            let found = happens_before(&threads, &earlier, AccessKind::Write, (&later, 0), &nothing);
            assert_eq!(found, before, "warp {warp}, lanes {lanes:#b}");
        }
    }

    #[test]
    fn strength_by_scope_and_place() {
        let threads = threads();
        // The scopes of both accesses, and whether they suffice within a CTA, within a PE, and
        // between PEs.
        let table = [
            ((None, None), [false; 3]),
            ((None, Some(Scope::Sys)), [false; 3]),
            ((Some(Scope::Cta), Some(Scope::Cta)), [true, false, false]),
            ((Some(Scope::Cta), Some(Scope::Sys)), [true, false, false]),
            ((Some(Scope::Gpu), Some(Scope::Gpu)), [true, true, false]),
            ((Some(Scope::Gpu), Some(Scope::Sys)), [true, true, false]),
            ((Some(Scope::Sys), Some(Scope::Sys)), [true; 3]),
        ];
        for ((x, y), wanted) in table {
            for (warp, wanted) in [1, 2, 3].into_iter().zip(wanted) {
                let (a, b) = (record(0, 1, Agent::Thread, x), record(warp, 1, Agent::Thread, y));
                assert_eq!(morally_strong(&threads, &a, &b), wanted, "{x:?} {y:?} with warp {warp}");
                assert_eq!(morally_strong(&threads, &b, &a), wanted, "{y:?} {x:?} with warp {warp}");
            }
        }
    }

    /// An access may be forgotten only if each access that is strong enough for the newer one is
    /// strong enough for the older one.
    #[test]
    fn what_stands_for_an_access_races_with_whatever_races_with_it() {
        let threads = threads();
        let strengths = [None, Some(Scope::Cta), Some(Scope::Gpu), Some(Scope::Sys)];
        let kinds = [AccessKind::Read, AccessKind::Write];
        let all = || {
            let kinds = kinds.into_iter();
            kinds.flat_map(|k| strengths.into_iter().flat_map(move |s| (0..4).map(move |warp| (k, s, warp))))
        };
        for (old_kind, old, a) in all() {
            for (kind, new, b) in all() {
                let (older, newer) = (record(a, 1, Agent::Thread, old), record(b, 1, Agent::Thread, new));
                if !stands_for(&threads, (&newer, kind), (&older, old_kind), true) {
                    continue;
                }
                for (third_kind, third, c) in all() {
                    let third = record(c, 2, Agent::Thread, third);
                    let races = |(r, kind): (&Record, AccessKind)| {
                        (kind.writes() || third_kind.writes()) && !morally_strong(&threads, r, &third)
                    };
                    let both = !races((&older, old_kind)) || races((&newer, kind));
                    assert!(both, "{old_kind:?} {older:?}, {kind:?} {newer:?}, {third_kind:?} {third:?}");
                }
            }
        }
    }
}
