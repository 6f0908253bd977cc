//! Measurements of the fastest plans for requests on one machine, as `weft tune` stores them.

mod file;
mod selector;

pub use file::{Stored, Tables};
pub use selector::{By, Selector, Tuning};

use super::{Algorithm, Collective, Limits, Links, Placement, Plan, Request, Sums};
use crate::tuned::{driver, hash, here};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weft_runtime::{DType, World, machine};

/// The setting that a table is for. Measurements of one setting do not hold for another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The name of the GPUs.
    pub gpu: String,
    /// The number of PEs of the team.
    pub n_pes: u32,
    /// The way in which the GPUs reach each other.
    pub wire: Wire,
    /// Whether the team has a multicast address.
    pub multicast: bool,
    /// The version of the driver, or of CUDA if NVML does not report a driver.
    pub driver: String,
}

/// The way in which PEs reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// PEs reach each other by NVLink.
    NvLink,
    /// Some PEs reach each other by PCIe peer access.
    Pcie,
    /// Some PEs reach each other only by NVSHMEM's operations.
    Network,
}

impl Setting {
    /// The setting of a team of `n_pes` PEs whose GPUs are like this PE's.
    ///
    /// # Errors
    /// Fails if the CUDA driver refuses a query (R0103).
    pub fn of(
        world: &World,
        n_pes: u32,
        (reach, multicast): (bool, bool),
    ) -> Result<Setting, weft_runtime::Error> {
        // Simulated PEs are a setting of their own.
        let simulated = world.device().is_simulated();
        let here = here().filter(|_| !simulated);
        let pcie =
            here.iter().flat_map(|d| &d.gpus).flat_map(|g| &g.links).any(|l| *l == machine::Link::Pcie);
        let wire = match (reach, pcie) {
            (false, _) => Wire::Network,
            (true, true) => Wire::Pcie,
            (true, false) => Wire::NvLink,
        };
        let driver = driver(world.device())?;
        Ok(Setting { gpu: world.device().name()?, n_pes, wire, multicast, driver })
    }

    /// Whether it differs at most in the driver.
    fn resembles(&self, other: &Setting) -> bool {
        Setting { driver: String::new(), ..self.clone() }
            == Setting { driver: String::new(), ..other.clone() }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = ["NVLink", "PCIe", "network"][self.wire as usize];
        let switch = if self.multicast { ", multicast" } else { "" };
        write!(f, "{} x {}, {wire}{switch}, driver {}", self.n_pes, self.gpu, self.driver)
    }
}

/// The logarithm of the largest factor between a size and the nearest measured one: sixteen.
const FAR: f64 = 2.7726;

/// The fastest plan of some sizes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The collective that the plan is for.
    pub collective: Collective,
    /// Where the results are.
    pub place: Placement,
    /// Whether operands are in the symmetric heap; if not, in any memory.
    pub symmetric: bool,
    /// The type of the elements.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// The sums that calls allow, for which the plan is the fastest.
    #[serde(default)]
    pub sums: Sums,
    /// The name of the algorithm.
    pub algorithm: String,
    /// The limits of the plan.
    #[serde(flatten)]
    pub limits: Limits,
    /// The sizes in bytes ([`Request::bytes`]) for which it was the fastest, ascending, each with
    /// microseconds of a call.
    pub sizes: Vec<(u64, f64)>,
}

/// The measurements of one setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Table {
    /// The setting that was measured.
    pub setting: Setting,
    /// The version of warpweft.
    pub warpweft: String,
    /// The version of NVSHMEM.
    pub nvshmem: String,
    /// The time at which it was measured.
    pub date: String,
    /// The words of the command that measured it.
    pub command: Vec<String>,
    /// The latencies and bandwidths of the machine. The model uses them for what is not in the table.
    pub links: Links,
    /// A hash of the text of each part of the library that was measured. If a part has changed since, its
    /// measurements do not hold.
    pub parts: BTreeMap<String, String>,
    /// The fastest plans, by size.
    pub entries: Vec<Entry>,
}

impl Entry {
    /// The algorithm of that name, if it still exists.
    pub fn algorithm(&self) -> Option<&'static Algorithm> {
        Algorithm::find(self.collective, &self.algorithm).ok()
    }

    /// The logarithm of the factor between a size and the nearest measured one.
    fn distance(&self, bytes: u64) -> f64 {
        let ln = |n: u64| (n.max(1) as f64).ln();
        let (from, to) = (self.sizes.first().map_or(0, |s| s.0), self.sizes.last().map_or(0, |s| s.0));
        (ln(from) - ln(bytes)).max(ln(bytes) - ln(to)).max(0.0)
    }

    /// The reason why `weft tune` cannot have written it.
    fn flaw(&self) -> Option<&'static str> {
        let Limits { ctas, threads, unroll } = self.limits;
        let ascending = self.sizes.is_sorted_by(|a, b| a.0 < b.0);
        match () {
            () if self.sizes.is_empty() || !ascending => Some("its sizes are not in ascending order"),
            () if self.sizes.iter().any(|(_, us)| !us.is_finite() || *us <= 0.0) => {
                Some("it has an invalid time")
            }
            () if ctas == 0 || !(32..=1024).contains(&threads) || !(1..=16).contains(&unroll) => {
                Some("its numbers of CTAs, threads or steps in flight are not possible")
            }
            () => None,
        }
    }
}

impl Table {
    /// Removes the entries that no longer hold, and says why they do not.
    pub fn usable(mut self) -> (Table, Vec<String>) {
        let mut why = Vec::new();
        let parts = std::mem::take(&mut self.parts);
        self.entries.retain(|e| {
            let reason = match e.algorithm() {
                None => format!("{} has no `{}` here", e.collective, e.algorithm),
                Some(a) if parts.get(a.part) != Some(&hash(a.part)) => {
                    format!("{} was measured with other kernels", e.collective)
                }
                Some(_) => return true,
            };
            if !why.contains(&reason) {
                why.push(reason);
            }
            false
        });
        (Table { parts, ..self }, why)
    }

    /// The plan of the entry whose sizes are nearest to a request's, for the same type or else for
    /// one of the same width. It is `None` if nothing similar was measured.
    pub fn plan(&self, request: &Request, max_ctas: u32) -> Option<Plan> {
        let plan = |e: &Entry| {
            let plan = Plan::within(e.algorithm()?, request, e.limits, max_ctas);
            let fits = plan.check(request, max_ctas).and_then(|()| plan.algorithm.allowed(request));
            fits.ok().map(|()| plan)
        };
        let bytes = request.bytes();
        let group = (request.collective, request.place, request.dtype.bytes());
        let fits = |e: &&Entry| {
            (e.collective, e.place, e.dtype.bytes()) == group
                && (!e.symmetric || request.symmetric == [true; 2])
                && (e.sums == request.sums || request.sums == Sums::Deterministic)
        };
        let near = |e| Some((e, Entry::distance(e, bytes))).filter(|(_, far)| *far <= FAR);
        let mut found: Vec<_> = self.entries.iter().filter(fits).filter_map(near).collect();
        // Plans for any memory also hold for the symmetric heap, but those for the heap are better.
        let rank = |e: &Entry| (e.sums != request.sums, e.dtype != request.dtype, !e.symmetric);
        found.sort_by(|(a, from), (b, to)| rank(a).cmp(&rank(b)).then(from.total_cmp(to)));
        found.into_iter().find_map(|(e, _)| plan(e))
    }

    /// Records that its entries hold for the library as it is now.
    pub fn stamp(&mut self) {
        self.parts = hashes(&self.entries);
    }

    /// Takes over the measurements of a newer table of the same setting. They replace all of the
    /// same collective and type.
    pub fn renew(&mut self, newer: Table) {
        let group = |e: &Entry| (e.collective, e.dtype, e.sums);
        let measured = |e: &Entry| newer.entries.iter().any(|n| group(n) == group(e));
        let mut entries: Vec<Entry> = std::mem::take(self).usable().0.entries;
        entries.retain(|e| !measured(e));
        entries.extend(newer.entries.iter().cloned());
        *self = Table { entries, ..newer };
        self.stamp();
    }

    /// The table for people, with a line for each entry.
    pub fn text(&self) -> String {
        let mut out = format!("# {}; warpweft {}, {}\n", self.setting, self.warpweft, self.date);
        let names = [
            "collective",
            "place",
            "memory",
            "type",
            "bytes",
            "algorithm",
            "CTAs",
            "threads",
            "at once",
            "us",
        ];
        let line = |cells: [&str; 10]| {
            let [collective, place, memory, dtype, bytes, algorithm, ctas, threads, unroll, us] = cells;
            format!(
                "{collective:>14}{place:>14}{memory:>11}{dtype:>6}{bytes:>24}  {algorithm:<19}{ctas:>5}{threads:>8}{unroll:>8}  {us}\n"
            )
        };
        if !self.entries.is_empty() {
            out.push_str(&line(names));
        }
        for e in &self.entries {
            let ends = [e.sizes.first(), e.sizes.last()].map(|s| s.map_or(0, |s| s.0));
            let bytes = match ends {
                [from, to] if from == to => from.to_string(),
                [from, to] => format!("{from} to {to}"),
            };
            let Limits { ctas, threads, unroll } = e.limits;
            let [ctas, threads, unroll] = [ctas, threads, unroll].map(|n| n.to_string());
            let us: Vec<_> = e.sizes.iter().map(|(_, us)| format!("{us:.2}")).collect();
            let memory = if e.symmetric { "symmetric" } else { "any" };
            let (name, dtype) = (e.collective.name(), e.dtype.name());
            let algorithm = match e.sums {
                Sums::Ordinary => e.algorithm.clone(),
                sums => format!("{} ({sums})", e.algorithm),
            };
            out.push_str(&line([
                name,
                e.place.name(),
                memory,
                dtype,
                &bytes,
                &algorithm,
                &ctas,
                &threads,
                &unroll,
                &us.join(" "),
            ]));
        }
        out
    }
}

impl Default for Table {
    fn default() -> Table {
        let setting = Setting {
            gpu: String::new(),
            n_pes: 0,
            wire: Wire::Network,
            multicast: false,
            driver: String::new(),
        };
        Table {
            setting,
            warpweft: env!("CARGO_PKG_VERSION").into(),
            nvshmem: String::new(),
            date: String::new(),
            command: Vec::new(),
            links: Links::H200,
            parts: BTreeMap::new(),
            entries: Vec::new(),
        }
    }
}

/// Hashes of the library's parts that entries depend on.
fn hashes(entries: &[Entry]) -> BTreeMap<String, String> {
    let part = |e: &Entry| e.algorithm().map(|a| (a.part.to_owned(), hash(a.part)));
    entries.iter().filter_map(part).collect()
}

#[cfg(test)]
mod tests;
