//! The search for the fastest plan of a request, independent of how plans are measured.
//!
//! Every algorithm is measured with its default limits. From the fastest of them the search climbs:
//! it halves or doubles the CTAs, threads, or steps in flight as long as that is faster. The best
//! few are measured for longer.

use weft::collective::{Algorithm, Limits, Links, Plan, Request};

/// How long a plan is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// A brief measurement, which finds the candidates.
    Brief,
    /// A long measurement, which ranks the candidates.
    Long,
}

/// The number of algorithms that the search climbs from, for each memory.
const CLIMBS: usize = 3;
/// The number of plans that get a long measurement because they seem faster than the best of each
/// algorithm.
const FINALISTS: usize = 4;
/// The greatest number of plans that are measured for a request.
const MAX_PLANS: usize = 64;
/// The search climbs from algorithms that are at most this factor slower than the fastest.
const NEAR: f64 = 1.4;
/// Algorithms that the model predicts to be more than this factor slower than the fastest are not
/// measured.
const HOPELESS: f64 = 8.0;
/// Times whose ratio is above this count as equal.
const SAME: f64 = 0.98;

/// A plan that was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// The limits that the plan was made with.
    pub limits: Limits,
    /// The plan that was measured.
    pub plan: Plan,
    /// Microseconds of a call.
    pub us: f64,
    long: bool,
}

/// The search result for a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchResult {
    /// The fastest plan for operands in the symmetric heap.
    pub symmetric: Option<Timed>,
    /// The fastest plan for operands in any memory.
    pub any: Option<Timed>,
    /// The plan that the model would have chosen for the symmetric heap, if it was measured.
    pub model: Option<Timed>,
    /// The number of plans that were measured.
    pub plans: usize,
}

/// Measures a plan and returns the microseconds of a call, infinite if the plan does not work on
/// this machine.
pub type Measure<'a, E> = &'a mut dyn FnMut(&Plan, Look) -> Result<f64, E>;

/// The plans that a search looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// The plans that the caller gives.
    Given,
    /// The given plans and the plans that are used without measurements.
    Defaults,
    /// These plans, and the climb from the best of them.
    Climb,
}

impl SearchResult {
    /// The fastest plans of both memories, and the limits that they were made with.
    pub fn best(&self) -> Vec<(&'static Algorithm, Limits)> {
        let all = [self.symmetric, self.any].into_iter().flatten();
        all.map(|t| (t.plan.algorithm, t.limits)).collect()
    }

    /// Whether the same plan is the fastest as for another size.
    pub fn agrees(&self, other: &SearchResult) -> bool {
        self.best() == other.best()
    }
}

/// A request, and the plans among which the fastest is searched.
pub struct Search<'a> {
    /// The request, of operands in the symmetric heap.
    pub request: Request,
    /// The greatest number of CTAs.
    pub max_ctas: u32,
    /// The links that the model uses.
    pub links: &'a Links,
    /// The plans that the search looks at.
    pub effort: Effort,
    /// The fastest plans of the previous size, which are kept if they are as good.
    pub before: &'a [(&'static Algorithm, Limits)],
}

impl Search<'_> {
    /// Measures plans and returns the fastest ones.
    ///
    /// # Errors
    /// Fails with the error of the first measurement that fails.
    pub fn run<E>(&self, measure: Measure<'_, E>) -> Result<SearchResult, E> {
        let mut tried = Tried { search: self, measure, all: Vec::new() };
        let request = &self.request;
        let able: Vec<_> = Algorithm::of(request.collective).filter(|a| a.allowed(request).is_ok()).collect();
        let of = |a: &'static Algorithm| Plan::of(a, request, self.max_ctas);
        let expected = |a: &&'static Algorithm| self.links.time(&of(a), request);
        let memories = [[true; 2], [false; 2]].into_iter().filter(|_| self.effort != Effort::Given);
        for memory in memories {
            let request = Request { symmetric: memory, ..*request };
            let able = able.iter().copied().filter(|a| a.can(&request).is_ok());
            let least = able.clone().map(|a| expected(&a)).fold(f64::MAX, f64::min);
            for a in able.filter(|a| expected(a) <= HOPELESS * least) {
                tried.look(a, Limits::of(a, self.max_ctas), Look::Brief)?;
            }
        }
        for (a, limits) in self.before.iter().filter(|(a, _)| a.allowed(request).is_ok()) {
            tried.look(a, *limits, Look::Brief)?;
        }
        let symmetric = tried.best([true; 2])?;
        let any = tried.best([false; 2])?;
        let chosen = Plan::choose(request, self.max_ctas, self.links).ok();
        let model = tried.all.iter().find(|t| Some(t.plan) == chosen).copied();
        Ok(SearchResult { symmetric, any, model, plans: tried.all.len() })
    }
}

/// The plans that were measured so far.
struct Tried<'a, 'm, E> {
    search: &'a Search<'a>,
    measure: Measure<'m, E>,
    all: Vec<Timed>,
}

impl<E> Tried<'_, '_, E> {
    fn plan(&self, a: &'static Algorithm, limits: Limits) -> Plan {
        Plan::within(a, &self.search.request, limits, self.search.max_ctas)
    }

    /// The time of a plan, measured if necessary; none if it cannot be launched, or if the greatest
    /// number of plans is reached.
    fn look(&mut self, a: &'static Algorithm, limits: Limits, look: Look) -> Result<Option<Timed>, E> {
        let plan = self.plan(a, limits);
        let known = self.all.iter().position(|t| t.plan == plan);
        let enough =
            self.all.len() >= MAX_PLANS || plan.check(&self.search.request, self.search.max_ctas).is_err();
        let at = match known {
            Some(at) if look == Look::Brief || self.all[at].long => return Ok(Some(self.all[at])),
            None if enough => return Ok(None),
            at => at,
        };
        let us = (self.measure)(&plan, look)?;
        let timed = Timed { limits, plan, us, long: look == Look::Long };
        Ok(Some(match at {
            Some(at) => {
                // The entry keeps the limits that the plan was first made with.
                self.all[at] = Timed { limits: self.all[at].limits, ..timed };
                self.all[at]
            }
            None => {
                self.all.push(timed);
                timed
            }
        }))
    }

    /// The plans that support a memory, the fastest first.
    fn fastest(&self, memory: [bool; 2]) -> Vec<Timed> {
        let request = Request { symmetric: memory, ..self.search.request };
        let mut able: Vec<_> = self
            .all
            .iter()
            .filter(|t| t.us.is_finite() && t.plan.algorithm.can(&request).is_ok())
            .copied()
            .collect();
        able.sort_by(|a, b| a.us.total_cmp(&b.us));
        able
    }

    /// The fastest plan of a memory.
    fn best(&mut self, memory: [bool; 2]) -> Result<Option<Timed>, E> {
        let mut from: Vec<Timed> = Vec::new();
        for t in self.fastest(memory) {
            let near = from.first().is_none_or(|f| t.us <= NEAR * f.us);
            if near && from.len() < CLIMBS && from.iter().all(|f| f.plan.algorithm != t.plan.algorithm) {
                from.push(t);
            }
        }
        for timed in from.iter().filter(|_| self.search.effort == Effort::Climb) {
            self.climb(*timed)?;
        }
        // First the best plan of each algorithm, then the plans of the previous size, and then
        // other plans that seem faster than all these.
        let kept = |t: &Timed| self.search.before.contains(&(t.plan.algorithm, t.limits));
        let default = |t: &Timed| t.limits == Limits::of(t.plan.algorithm, self.search.max_ctas);
        let all = self.fastest(memory);
        let best = |f: &Timed| all.iter().find(|t| t.plan.algorithm == f.plan.algorithm).copied();
        let least = all.first().map_or(f64::MAX, |t| t.us);
        let preferred = all.iter().filter(|t| kept(t) || default(t) && t.us * SAME <= least).copied();
        let finalists: Vec<_> = from.iter().filter_map(best).chain(preferred).collect();
        for t in finalists {
            self.look(t.plan.algorithm, t.limits, Look::Long)?;
        }
        for _ in 0..FINALISTS {
            match self.fastest(memory).first() {
                Some(t) if !t.long => self.look(t.plan.algorithm, t.limits, Look::Long)?,
                _ => break,
            };
        }
        let found: Vec<_> = self.fastest(memory).into_iter().filter(|t| t.long).collect();
        let Some(least) = found.first() else { return Ok(None) };
        let or =
            |wanted: &dyn Fn(&Timed) -> bool| found.iter().find(|t| wanted(t) && least.us >= SAME * t.us);
        Ok(or(&kept).or_else(|| or(&default)).or(Some(least)).copied())
    }

    /// Climbs from a plan as long as a neighbour is faster.
    fn climb(&mut self, from: Timed) -> Result<(), E> {
        let mut at = from;
        loop {
            let began = at.us;
            for knob in [ctas, threads, unroll] as [Knob; 3] {
                for up in [false, true] {
                    while let Some(next) = self.neighbour(&at, knob, up) {
                        match self.look(at.plan.algorithm, next, Look::Brief)? {
                            Some(t) if t.us < SAME * at.us => at = t,
                            _ => break,
                        }
                    }
                }
            }
            if at.us >= SAME * began {
                return Ok(());
            }
        }
    }

    /// The nearest limits in a direction that result in another plan.
    fn neighbour(&self, at: &Timed, knob: Knob, up: bool) -> Option<Limits> {
        let a = at.plan.algorithm;
        let bounds = Limits { ctas: self.search.max_ctas.min(a.max_ctas), threads: 1024, unroll: 8 };
        let limits = Limits { ctas: at.limits.ctas.min(bounds.ctas), ..at.limits };
        let next = |limits: &Limits| {
            let mut next = *limits;
            let (value, bound) = (*knob(&mut next), *knob(&mut bounds.clone()));
            let moved = if up { value.saturating_mul(2).min(bound) } else { value / 2 };
            *knob(&mut next) = moved;
            (moved != value && moved > 0 && next.threads >= 32).then_some(next)
        };
        std::iter::successors(next(&limits), next).find(|limits| self.plan(a, *limits) != at.plan)
    }
}

type Knob = fn(&mut Limits) -> &mut u32;

fn ctas(limits: &mut Limits) -> &mut u32 {
    &mut limits.ctas
}

fn threads(limits: &mut Limits) -> &mut u32 {
    &mut limits.threads
}

fn unroll(limits: &mut Limits) -> &mut u32 {
    &mut limits.unroll
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use weft::collective::Collective;
    use weft_runtime::DType;

    /// A machine whose times are those of the model, modified by `change`.
    fn search(
        bytes: u64,
        before: &[(&'static Algorithm, Limits)],
        change: impl Fn(&Plan, Look, f64) -> f64,
    ) -> (SearchResult, Vec<(Plan, Look)>) {
        let request = Request::new(Collective::AllReduce, DType::BF16, bytes / 2, 8);
        let search = Search { request, max_ctas: 132, links: &Links::H200, effort: Effort::Climb, before };
        let mut looks = Vec::new();
        let found = search.run::<Infallible>(&mut |plan, look| {
            looks.push((*plan, look));
            Ok(change(plan, look, Links::H200.time(plan, &request)))
        });
        (found.unwrap(), looks)
    }

    /// A time with its minimum at these numbers of CTAs, threads and steps in flight.
    fn valley(name: &'static str, at: (u32, u32, u32)) -> impl Fn(&Plan, Look, f64) -> f64 {
        move |plan, _, us| {
            let away = |a: u32, b: u32| (f64::from(a) / f64::from(b)).log2().abs();
            let far = away(plan.ctas, at.0) + away(plan.threads, at.1) + away(plan.unroll, at.2);
            if plan.algorithm.name == name { 5.0 + far } else { us.max(9.0) }
        }
    }

    #[test]
    fn the_search_climbs_to_the_best_plan() {
        let (found, looks) = search(64 << 20, &[], valley("push_direct", (33, 512, 2)));
        let best = found.symmetric.unwrap();
        // (Other numbers of CTAs with the same number of rounds are as good.)
        assert!(best.plan.algorithm.name == "push_direct" && best.us < 5.1, "{best:?}");
        assert_eq!((best.plan.threads, best.plan.unroll), (512, 2));
        assert_eq!(found.any.unwrap().plan.algorithm.name, "push");
        let request = Request::new(Collective::AllReduce, DType::BF16, 32 << 20, 8);
        assert_eq!(found.model.map(|m| m.plan), Plan::choose(&request, 132, &Links::H200).ok());
        // No plan is measured twice, except that the best get a long measurement.
        assert!(
            looks.len() <= MAX_PLANS + 2 * (FINALISTS + CLIMBS) && found.plans <= MAX_PLANS,
            "{}",
            looks.len()
        );
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "{look:?}");
        }
    }

    #[test]
    fn what_was_the_best_stays_where_it_is_as_good() {
        let push = Algorithm::find(Collective::AllReduce, "push_direct").unwrap();
        let before = [(push, Limits { ctas: 132, threads: 512, unroll: 2 })];
        // and 66 CTAs are equally good, to within a hundredth.
        let flat = |plan: &Plan, _: Look, us: f64| match plan.algorithm == push {
            true => 5.0 - f64::from(plan.ctas == 66) * 0.04,
            false => us.max(9.0),
        };
        let (found, _) = search(64 << 20, &before, flat);
        assert_eq!(found.symmetric.unwrap().limits, before[0].1);
        // Without a previous size, the default limits are used.
        let (found, _) = search(64 << 20, &[], flat);
        assert_eq!(found.symmetric.unwrap().limits, Limits::of(push, 132));
    }

    #[test]
    fn a_lucky_glance_does_not_win() {
        let lucky = |plan: &Plan, look: Look, us: f64| match (plan.algorithm.name, look) {
            ("one_shot", Look::Brief) => 2.0,
            ("one_shot", Look::Long) => 50.0,
            _ => us,
        };
        let (found, _) = search(1 << 20, &[], lucky);
        assert_ne!(found.symmetric.unwrap().plan.algorithm.name, "one_shot");
    }

    #[test]
    fn errors_end_the_search() {
        let request = Request::new(Collective::Broadcast, DType::F32, 1000, 4);
        let search =
            Search { request, max_ctas: 8, links: &Links::H200, effort: Effort::Defaults, before: &[] };
        let mut looks = 0;
        let e = search.run(&mut |_, _| {
            looks += 1;
            if looks == 3 { Err("no more") } else { Ok(1.0) }
        });
        assert_eq!((e, looks), (Err("no more"), 3));
    }

    /// Only the given plans are measured, and the faster of them is found for each memory.
    #[test]
    fn the_faster_of_two() {
        let find = |name| Algorithm::find(Collective::AllReduce, name).unwrap();
        let given = ["ll", "push_direct", "push"].map(|name| (find(name), Limits::of(find(name), 132)));
        let request = Request::new(Collective::AllReduce, DType::BF16, 1 << 18, 2);
        let links = &Links::H200;
        let search = Search { request, max_ctas: 132, links, effort: Effort::Given, before: &given };
        let found = search.run::<Infallible>(&mut |plan, _| Ok(links.time(plan, &request))).unwrap();
        let name = |t: Option<Timed>| t.unwrap().plan.algorithm.name;
        assert_eq!((name(found.symmetric), name(found.any), found.plans), ("ll", "ll", 3));
        assert!(found.agrees(&found) && found.best() == [given[0]; 2]);
    }

    /// Every collective, placement and size has a plan that can be launched, also with few CTAs.
    #[test]
    fn plans_fit_everywhere() {
        for collective in Collective::ALL {
            for (bytes, max_ctas) in [(64, 1), (1 << 12, 3), (1 << 20, 132), (1 << 28, 7)] {
                let count = collective.counts(bytes, 4, 4).unwrap().count;
                let request = Request::new(collective, DType::F32, count, 4);
                let search =
                    Search { request, max_ctas, links: &Links::H200, effort: Effort::Climb, before: &[] };
                let found = search.run::<Infallible>(&mut |plan, _| {
                    plan.check(&request, max_ctas).unwrap();
                    Ok(f64::from(plan.threads % 7 + plan.unroll + plan.ctas % 5) + 1.0)
                });
                let found = found.unwrap();
                assert!(found.symmetric.is_some() && found.any.is_some(), "{collective} {bytes}");
            }
        }
    }
}
