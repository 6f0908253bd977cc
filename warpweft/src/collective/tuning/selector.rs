//! Chooses the plan of a request from a table, or else from a model. All PEs of a team choose the
//! same plan.

use super::super::{Links, Plan, Request};
use super::{Setting, Stored, Table, Tables, Wire};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use weft_runtime::machine::{self, Driver};
use weft_runtime::{Error, Team, World, error};

/// The source of plans.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Tuning {
    /// Plans come from the table that `weft tune` has stored for this machine and number of PEs,
    /// or, without one, from the model.
    #[default]
    Stored,
    /// Plans come from the model alone.
    Model,
    /// Plans come from this table, or from the model for what is not in it.
    Table(Arc<Table>),
}

/// The source that a plan was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The plan is from a table of measurements.
    Table,
    /// The plan is from the model, which knows the cost of each algorithm and the speed of the
    /// links.
    Model,
}

/// Chooses the plan of each request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Selector {
    table: Option<Table>,
    links: Links,
    /// The source of the table, or why there is none.
    about: String,
}

impl Selector {
    /// Creates a selector that uses the model alone.
    pub fn model(links: Links, why: impl Into<String>) -> Selector {
        Selector { table: None, links, about: why.into() }
    }

    /// Creates a selector that uses a table, and the model with the table's links for what is not in it.
    pub fn table(table: Table, about: impl Into<String>) -> Selector {
        Selector { links: table.links, table: Some(table), about: about.into() }
    }

    /// Makes the requested selector on this PE. If the file cannot be used, a warning is printed on
    /// standard error.
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver rejects a call (R0103).
    fn of(requested: &Tuning, world: &World, team: &Team, links: (bool, bool)) -> Result<Selector, Error> {
        let setting = Setting::of(world, team.n_pes(), links)?;
        let model = |why: String| Selector::model(specified(&setting), why);
        Ok(match requested {
            Tuning::Table(table) => Selector::table(table.as_ref().clone().usable().0, "a table given"),
            Tuning::Model => model("as requested".into()),
            Tuning::Stored => match Tables::path() {
                None => model("WEFT_TUNING is off, or there is no folder for the table".into()),
                Some(file) => {
                    match Tables::read(&file).map(|all| (all.links(&setting), all.find(&setting))) {
                        Ok((_, Stored::Table(table, void))) => {
                            let void = void.iter().map(|why| format!("; {why}")).collect::<String>();
                            let about = format!("{} of {}{void}", file.display(), table.date);
                            Selector::table(*table, about)
                        }
                        Ok((links, Stored::None(why))) => {
                            let links = links.unwrap_or_else(|| specified(&setting));
                            Selector::model(links, format!("{why}; `weft tune` measures one"))
                        }
                        Err(e) => {
                            // One warning for the team is enough.
                            if team.my_pe() == 0 {
                                eprintln!("warning: collectives run without a tuning table: {e}");
                            }
                            model(e.message)
                        }
                    }
                }
            },
        })
    }

    /// Makes the requested selector, the same on all PEs of a team: that of the team's first PE,
    /// which may be on another machine. This call is *collective* over the world.
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver rejects a call (R0103), if another PE has ended (R0203), or if the
    /// PEs do not agree (R0301).
    pub(crate) fn agreed(
        requested: &Tuning,
        world: &World,
        team: &Team,
        links: (bool, bool),
    ) -> Result<Selector, Error> {
        let own = Selector::of(requested, world, team, links)?;
        let text = serde_json::to_vec(&own).unwrap_or_default();
        let first = team.members().first().copied().unwrap_or(world.my_pe());
        let message = [&first.to_le_bytes()[..], blake3::hash(&text).as_bytes()].concat();
        let all = world.all_gather_host(&message)?;
        let differs = differing(&all);
        if differs.is_empty() {
            return Ok(own);
        }
        // PEs of teams with different selectors send theirs.
        let sent = if differs.contains(&world.my_pe()) { &text[..] } else { &[] };
        let sent = world.all_gather_host(sent)?;
        if !differs.contains(&first) {
            return Ok(own);
        }
        let of_first = sent.get(first as usize).map(Vec::as_slice).unwrap_or_default();
        serde_json::from_slice(of_first)
            .map_err(|e| Error::new(error::TUNING, format!("PE {first}'s tuning table cannot be read: {e}")))
    }

    /// The table of measurements, if the selector has one.
    pub fn measured(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The latencies and bandwidths that the model uses.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The plan of a request, for a handle with workspaces for `max_ctas` CTAs.
    ///
    /// # Errors
    /// Fails if no algorithm supports the request. The message says why.
    pub fn plan(&self, request: &Request, max_ctas: u32) -> Result<(Plan, By), String> {
        let measured = self.table.as_ref().and_then(|t| t.plan(request, max_ctas));
        match measured {
            Some(plan) => Ok((plan, By::Table)),
            None => Ok((Plan::choose(request, max_ctas, &self.links)?, By::Model)),
        }
    }
}

/// The first PEs of those teams in which a PE differs from the first, by the messages of all PEs.
fn differing(all: &[Vec<u8>]) -> Vec<u32> {
    let parse = |message: &Vec<u8>| {
        message.split_first_chunk().map(|(n, hash)| (u32::from_le_bytes(*n), hash.to_vec()))
    };
    let all: Vec<_> = all.iter().map(parse).collect();
    let hash = |pe: u32| all.get(pe as usize).and_then(|s| s.as_ref().map(|(_, hash)| hash));
    let mut out: Vec<u32> = all
        .iter()
        .flatten()
        .filter(|(first, own)| hash(*first) != Some(own))
        .map(|(first, _)| *first)
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.table.is_some() { "table" } else { "model" };
        write!(f, "{by}: {}", self.about)
    }
}

/// The specified latencies and bandwidths of a setting's links.
fn specified(setting: &Setting) -> Links {
    if setting.wire == Wire::Pcie {
        return Links::PCIE;
    }
    let nvlink = |d: &Driver| {
        let gpu = d.gpus.iter().find(|g| g.name == setting.gpu)?;
        Some(machine::nvlink_gbps(gpu.nvlinks?, gpu.compute_capability))
    };
    let gbps = crate::tuned::here().and_then(nvlink).filter(|gbps| *gbps > 0.0);
    gbps.map_or(Links::H200, Links::nvlink)
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn teams_whose_pes_differ_are_found() {
        let message = |first: u32, hash: u8| [&first.to_le_bytes()[..], &[hash; 32]].concat();
        assert_eq!(differing(&[message(0, 7), message(0, 7), message(0, 7)]), [0u32; 0]);
        assert_eq!(differing(&[message(0, 7), message(0, 7), message(0, 8)]), [0]);
        // Teams of even and of odd PEs, each with its own selector.
        assert_eq!(differing(&[message(0, 7), message(1, 8), message(0, 7), message(1, 8)]), [0u32; 0]);
        assert_eq!(differing(&[message(0, 7), message(1, 8), message(0, 8), message(1, 7)]), [0, 1]);
        // An answer that is invalid or from a PE that does not exist does not agree.
        assert_eq!(differing(&[message(0, 7), vec![1, 2]]), [0u32; 0]);
        assert_eq!(differing(&[message(9, 7)]), [9]);
    }
}
