//! The search for the fastest plan of a request, whoever measures.
//!
//! Every algorithm is looked at as it is where nobody has measured. From the fastest of them the search climbs: half or
//! twice the CTAs, threads, or steps at once, as long as that is faster. The best few are measured at length.

use weft::collective::{Algorithm, Limits, Links, Plan, Request};

/// How long a plan is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// To tell good from bad.
    Brief,
    /// To tell good from better.
    Long,
}

/// Algorithms that the search climbs from, for each memory.
const CLIMBS: usize = 3;
/// Plans that are looked at long since they seem faster than the best of each algorithm did.
const FINALISTS: usize = 4;
/// Plans of a request that are measured at all.
const MOST: usize = 64;
/// How much slower than the fastest an algorithm may be that is climbed from.
const NEAR: f64 = 1.4;
/// How much slower than the fastest the model may have an algorithm that is measured.
const HOPELESS: f64 = 8.0;
/// Times this close are as good as the same.
const SAME: f64 = 0.98;

/// A plan that was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timed {
    /// What it was made within.
    pub most: Limits,
    /// The plan that was measured.
    pub plan: Plan,
    /// Microseconds of a call.
    pub us: f64,
    long: bool,
}

/// What was found for a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    /// The fastest of operands in the symmetric heap.
    pub symmetric: Option<Timed>,
    /// The fastest of operands anywhere.
    pub any: Option<Timed>,
    /// The plan that the model would have chosen for the symmetric heap, if it was measured.
    pub model: Option<Timed>,
    /// Plans that were measured.
    pub plans: usize,
}

/// Measures a plan: microseconds of a call, infinite where the plan does not work here.
pub type Measure<'a, E> = &'a mut dyn FnMut(&Plan, Look) -> Result<f64, E>;

/// The plans that a search looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// The plans that the caller gives.
    Given,
    /// The given plans and the plans that are used without measurements.
    Defaults,
    /// And from the best of these on.
    Climb,
}

impl Found {
    /// The fastest of either memory, and what they were made within.
    pub fn best(&self) -> Vec<(&'static Algorithm, Limits)> {
        let all = [self.symmetric, self.any].into_iter().flatten();
        all.map(|t| (t.plan.algorithm, t.most)).collect()
    }

    /// Whether the same is the fastest as for another size.
    pub fn agrees(&self, other: &Found) -> bool {
        self.best() == other.best()
    }
}

/// A request, and the plans among which the fastest is searched.
pub struct Search<'a> {
    /// The request, of operands in the symmetric heap.
    pub request: Request,
    /// The greatest number of CTAs.
    pub most_ctas: u32,
    /// What the model goes by.
    pub links: &'a Links,
    /// The plans that the search looks at.
    pub effort: Effort,
    /// What was the fastest for the size before: kept where it is as good.
    pub before: &'a [(&'static Algorithm, Limits)],
}

impl Search<'_> {
    /// Measures plans and returns the fastest ones.
    ///
    /// # Errors
    /// Fails with the error of the first measurement that fails.
    pub fn run<E>(&self, measure: Measure<'_, E>) -> Result<Found, E> {
        let mut tried = Tried { search: self, measure, all: Vec::new() };
        let request = &self.request;
        let able: Vec<_> = Algorithm::of(request.collective).filter(|a| a.allowed(request).is_ok()).collect();
        let of = |a: &'static Algorithm| Plan::of(a, request, self.most_ctas);
        let expected = |a: &&'static Algorithm| self.links.time(&of(a), request);
        let memories = [[true; 2], [false; 2]].into_iter().filter(|_| self.effort != Effort::Given);
        for memory in memories {
            let request = Request { symmetric: memory, ..*request };
            let able = able.iter().copied().filter(|a| a.can(&request).is_ok());
            let least = able.clone().map(|a| expected(&a)).fold(f64::MAX, f64::min);
            for a in able.filter(|a| expected(a) <= HOPELESS * least) {
                tried.look(a, Limits::of(a, self.most_ctas), Look::Brief)?;
            }
        }
        for (a, most) in self.before.iter().filter(|(a, _)| a.allowed(request).is_ok()) {
            tried.look(a, *most, Look::Brief)?;
        }
        let symmetric = tried.best([true; 2])?;
        let any = tried.best([false; 2])?;
        let chosen = Plan::choose(request, self.most_ctas, self.links).ok();
        let model = tried.all.iter().find(|t| Some(t.plan) == chosen).copied();
        Ok(Found { symmetric, any, model, plans: tried.all.len() })
    }
}

/// What was measured so far.
struct Tried<'a, 'm, E> {
    search: &'a Search<'a>,
    measure: Measure<'m, E>,
    all: Vec<Timed>,
}

impl<E> Tried<'_, '_, E> {
    fn plan(&self, a: &'static Algorithm, most: Limits) -> Plan {
        Plan::within(a, &self.search.request, most, self.search.most_ctas)
    }

    /// The time of a plan, measured if it was not yet; none where it cannot be launched, or enough were measured.
    fn look(&mut self, a: &'static Algorithm, most: Limits, look: Look) -> Result<Option<Timed>, E> {
        let plan = self.plan(a, most);
        let known = self.all.iter().position(|t| t.plan == plan);
        let enough =
            self.all.len() >= MOST || plan.check(&self.search.request, self.search.most_ctas).is_err();
        let at = match known {
            Some(at) if look == Look::Brief || self.all[at].long => return Ok(Some(self.all[at])),
            None if enough => return Ok(None),
            at => at,
        };
        let us = (self.measure)(&plan, look)?;
        let timed = Timed { most, plan, us, long: look == Look::Long };
        Ok(Some(match at {
            Some(at) => {
                // It keeps what it was first made within.
                self.all[at] = Timed { most: self.all[at].most, ..timed };
                self.all[at]
            }
            None => {
                self.all.push(timed);
                timed
            }
        }))
    }

    /// Those that can work in a memory, the fastest first.
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

    /// The fastest of a memory.
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
        // The best of each of them, what would rather be kept, and then whatever seems faster than all these.
        let kept = |t: &Timed| self.search.before.contains(&(t.plan.algorithm, t.most));
        let default = |t: &Timed| t.most == Limits::of(t.plan.algorithm, self.search.most_ctas);
        let all = self.fastest(memory);
        let best = |f: &Timed| all.iter().find(|t| t.plan.algorithm == f.plan.algorithm).copied();
        let least = all.first().map_or(f64::MAX, |t| t.us);
        let preferred = all.iter().filter(|t| kept(t) || default(t) && t.us * SAME <= least).copied();
        let finalists: Vec<_> = from.iter().filter_map(best).chain(preferred).collect();
        for t in finalists {
            self.look(t.plan.algorithm, t.most, Look::Long)?;
        }
        for _ in 0..FINALISTS {
            match self.fastest(memory).first() {
                Some(t) if !t.long => self.look(t.plan.algorithm, t.most, Look::Long)?,
                _ => break,
            };
        }
        let found: Vec<_> = self.fastest(memory).into_iter().filter(|t| t.long).collect();
        let Some(least) = found.first() else { return Ok(None) };
        let or =
            |wanted: &dyn Fn(&Timed) -> bool| found.iter().find(|t| wanted(t) && least.us >= SAME * t.us);
        Ok(or(&kept).or_else(|| or(&default)).or(Some(least)).copied())
    }

    /// Goes on from a plan as long as a neighbour is faster.
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

    /// The nearest limits that way that make another plan.
    fn neighbour(&self, at: &Timed, knob: Knob, up: bool) -> Option<Limits> {
        let a = at.plan.algorithm;
        let bounds = Limits { ctas: self.search.most_ctas.min(a.most_ctas), threads: 1024, unroll: 8 };
        let most = Limits { ctas: at.most.ctas.min(bounds.ctas), ..at.most };
        let next = |most: &Limits| {
            let mut next = *most;
            let (value, bound) = (*knob(&mut next), *knob(&mut bounds.clone()));
            let moved = if up { value.saturating_mul(2).min(bound) } else { value / 2 };
            *knob(&mut next) = moved;
            (moved != value && moved > 0 && next.threads >= 32).then_some(next)
        };
        std::iter::successors(next(&most), next).find(|most| self.plan(a, *most) != at.plan)
    }
}

type Knob = fn(&mut Limits) -> &mut u32;

fn ctas(most: &mut Limits) -> &mut u32 {
    &mut most.ctas
}

fn threads(most: &mut Limits) -> &mut u32 {
    &mut most.threads
}

fn unroll(most: &mut Limits) -> &mut u32 {
    &mut most.unroll
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use weft::collective::Collective;
    use weft_runtime::DType;

    /// A machine whose times are those of the model, but for what `change` makes of them.
    fn search(
        bytes: u64,
        before: &[(&'static Algorithm, Limits)],
        change: impl Fn(&Plan, Look, f64) -> f64,
    ) -> (Found, Vec<(Plan, Look)>) {
        let request = Request::new(Collective::AllReduce, DType::BF16, bytes / 2, 8);
        let search = Search { request, most_ctas: 132, links: &Links::H200, effort: Effort::Climb, before };
        let mut looks = Vec::new();
        let found = search.run::<Infallible>(&mut |plan, look| {
            looks.push((*plan, look));
            Ok(change(plan, look, Links::H200.time(plan, &request)))
        });
        (found.unwrap(), looks)
    }

    /// Least where CTAs, threads and steps at once are these.
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
        // (As many CTAs as have as many rounds.)
        assert!(best.plan.algorithm.name == "push_direct" && best.us < 5.1, "{best:?}");
        assert_eq!((best.plan.threads, best.plan.unroll), (512, 2));
        assert_eq!(found.any.unwrap().plan.algorithm.name, "push");
        let request = Request::new(Collective::AllReduce, DType::BF16, 32 << 20, 8);
        assert_eq!(found.model.map(|m| m.plan), Plan::choose(&request, 132, &Links::H200).ok());
        // None twice, but the best at length.
        assert!(looks.len() <= MOST + 2 * (FINALISTS + CLIMBS) && found.plans <= MOST, "{}", looks.len());
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "{look:?}");
        }
    }

    #[test]
    fn what_was_the_best_stays_where_it_is_as_good() {
        let push = Algorithm::find(Collective::AllReduce, "push_direct").unwrap();
        let before = [(push, Limits { ctas: 132, threads: 512, unroll: 2 })];
        // 132 and 66 CTAs are as good, within a hundredth.
        let flat = |plan: &Plan, _: Look, us: f64| match plan.algorithm == push {
            true => 5.0 - f64::from(plan.ctas == 66) * 0.04,
            false => us.max(9.0),
        };
        let (found, _) = search(64 << 20, &before, flat);
        assert_eq!(found.symmetric.unwrap().most, before[0].1);
        // Without one before, the limits where nobody has measured.
        let (found, _) = search(64 << 20, &[], flat);
        assert_eq!(found.symmetric.unwrap().most, Limits::of(push, 132));
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
            Search { request, most_ctas: 8, links: &Links::H200, effort: Effort::Defaults, before: &[] };
        let mut looks = 0;
        let e = search.run(&mut |_, _| {
            looks += 1;
            if looks == 3 { Err("no more") } else { Ok(1.0) }
        });
        assert_eq!((e, looks), (Err("no more"), 3));
    }

    /// Only what is given is looked at, and the faster of it found for each memory.
    #[test]
    fn the_faster_of_two() {
        let find = |name| Algorithm::find(Collective::AllReduce, name).unwrap();
        let given = ["ll", "push_direct", "push"].map(|name| (find(name), Limits::of(find(name), 132)));
        let request = Request::new(Collective::AllReduce, DType::BF16, 1 << 18, 2);
        let links = &Links::H200;
        let search = Search { request, most_ctas: 132, links, effort: Effort::Given, before: &given };
        let found = search.run::<Infallible>(&mut |plan, _| Ok(links.time(plan, &request))).unwrap();
        let name = |t: Option<Timed>| t.unwrap().plan.algorithm.name;
        assert_eq!((name(found.symmetric), name(found.any), found.plans), ("ll", "ll", 3));
        assert!(found.agrees(&found) && found.best() == [given[0]; 2]);
    }

    /// Every collective, place and size has a plan that can be launched, for a few CTAs too.
    #[test]
    fn plans_fit_everywhere() {
        for collective in Collective::ALL {
            for (bytes, most_ctas) in [(64, 1), (1 << 12, 3), (1 << 20, 132), (1 << 28, 7)] {
                let count = collective.counts(bytes, 4, 4).unwrap().count;
                let request = Request::new(collective, DType::F32, count, 4);
                let search =
                    Search { request, most_ctas, links: &Links::H200, effort: Effort::Climb, before: &[] };
                let found = search.run::<Infallible>(&mut |plan, _| {
                    plan.check(&request, most_ctas).unwrap();
                    Ok(f64::from(plan.threads % 7 + plan.unroll + plan.ctas % 5) + 1.0)
                });
                let found = found.unwrap();
                assert!(found.symmetric.is_some() && found.any.is_some(), "{collective} {bytes}");
            }
        }
    }
}
