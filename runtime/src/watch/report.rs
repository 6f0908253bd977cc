//! Describes the records of waits in words.

use super::on_gpus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use weft_abi::watch::{DROPPED, RECORD_BYTES, WaitInfo, WaitRecord, Watched};
use weft_abi::{KernelInfo, ParamKind};

/// The number of launches of this process so far.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// The information about a kernel whose waits are watched.
#[derive(Debug)]
pub(crate) struct Table {
    info: KernelInfo,
    last: Mutex<Launch>,
}

/// The last launch by the host.
#[derive(Clone, Default, Debug)]
struct Launch {
    /// The number of launches.
    count: u64,
    /// Its number among all launches of the process.
    order: u64,
    grid: [u32; 3],
    /// The parameters that were passed.
    block: Vec<u8>,
}

impl Table {
    pub fn new(info: &KernelInfo) -> Table {
        Table { info: info.clone(), last: Mutex::default() }
    }

    pub fn launched(&self, grid: [u32; 3], block: &[u8]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let order = LAUNCHES.fetch_add(1, Ordering::Relaxed) + 1;
        *last = Launch { count: last.count + 1, order, grid, block: block.to_vec() };
    }

    fn last(&self) -> Launch {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Describes a PE's records of the newest launch with records: one line for each wait, and one
    /// with the number of records that were dropped.
    pub fn lines(&self, of: &Records) -> Vec<String> {
        let records = &of.complete;
        let mut waits: BTreeMap<(u32, u32), Vec<&WaitRecord>> = BTreeMap::new();
        let newest = records.iter().map(|r| r.launch).max().unwrap_or_default();
        for r in records.iter().filter(|r| r.launch == newest) {
            waits.entry((r.launch, r.wait)).or_default().push(r);
        }
        let last = self.last();
        let lines = waits.into_iter().filter_map(|((_, wait), all)| self.line(wait, &all, &last));
        let dropped = (of.dropped > 0).then(|| {
            format!("`{}`: {} more waits were reported, but the buffer was full", self.info.name, of.dropped)
        });
        lines.chain(dropped).collect()
    }

    /// Describes one wait: the first CTA that reported it, and the number of others.
    fn line(&self, wait: u32, records: &[&WaitRecord], last: &Launch) -> Option<String> {
        let first = records.iter().min_by_key(|r| (r.cta, r.thread))?;
        let (name, launch) = (&self.info.name, first.launch);
        let mut line = format!("`{name}`, launch {launch}, CTA {}, ", first.cta);
        let Some(info) = self.info.waits.get(wait as usize) else {
            return Some(format!(
                "{line}thread {}: wait {wait}, which is missing in the kernel's description",
                first.thread
            ));
        };
        line.push_str(&match &info.role {
            Some(role) => format!("thread {} of role `{role}`", first.thread),
            None => format!("thread {}", first.thread),
        });
        line.push_str(&format!(
            " waits at {} (wait {wait}) for {}",
            info.place,
            self.object(info, first, last)
        ));
        line.push_str(&values(info, first));
        if records.len() > 1 {
            line.push_str(&format!("; so do {} other CTAs", records.len() - 1));
        }
        Some(line)
    }

    /// Describes what a thread waits for: a tensor's element if the address is in a parameter of
    /// the last launch.
    fn object(&self, info: &WaitInfo, record: &WaitRecord, last: &Launch) -> String {
        let place = self.info.params.iter().filter_map(|p| {
            let bytes = match &p.kind {
                ParamKind::Tensor { dtype, .. } => u64::from(dtype.bytes()),
                ParamKind::Barrier => 4,
                _ => return None,
            };
            let base = last.block.get(p.offset as usize..)?.first_chunk().map(|b| u64::from_le_bytes(*b))?;
            let named = matches!(&info.on, Watched::Parameter(name) if *name == p.name);
            (base > 0 && base <= record.address).then_some((named, base, &p.name, bytes))
        });
        // Use the parameter that the code names, or else the one that begins last before the
        // address.
        let found = place.max_by_key(|(named, base, ..)| (*named, *base));
        match (&info.on, found) {
            (Watched::Stage, _) => "a stage of a pipeline".into(),
            (Watched::Variable, _) => "a variable that an NVSHMEM function tests".into(),
            (Watched::Parameter(name), _) if record.address == 0 => format!("`{name}`"),
            (_, Some((_, base, name, bytes))) if record.address != 0 => {
                format!("`{name}[{}]`", (record.address - base) / bytes)
            }
            (_, _) => format!("memory at {:#x}", record.address),
        }
    }

    /// Describes the newest launch by the host.
    fn launch_words(&self) -> Option<String> {
        let last = self.last();
        let [x, y, z] = last.grid;
        let numbers = self.numbers(&last);
        (last.count > 0).then(|| {
            format!("`{}`, launch {} with grid [{x}, {y}, {z}]{numbers}", self.info.name, last.count)
        })
    }

    /// The numbers among a launch's arguments, which distinguish launches of different sizes.
    fn numbers(&self, last: &Launch) -> String {
        let number = |p: &weft_abi::ParamInfo| match p.kind {
            ParamKind::Scalar { .. } => {
                let bytes = last.block.get(p.offset as usize..(p.offset + p.size) as usize)?;
                let mut wide = [0u8; 8];
                wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(format!(", {} = {}", p.name, u64::from_le_bytes(wide)))
            }
            _ => None,
        };
        self.info.params.iter().filter_map(number).collect()
    }
}

/// Describes the watched kernels of a PE, with a line for each reported wait. Without reported
/// waits, the line describes the kernel that the host launched last.
pub(crate) fn summary(kernels: &[(&Table, Records)]) -> Vec<String> {
    let lines: Vec<_> = kernels.iter().flat_map(|(table, records)| table.lines(records)).collect();
    if !lines.is_empty() {
        return lines;
    }
    let newest = kernels.iter().max_by_key(|(table, _)| table.last().order);
    let words = newest.and_then(|(table, _)| table.launch_words());
    words.map(|w| format!("no wait was reported; the last launch was {w}")).into_iter().collect()
}

/// Describes the value that was read, and the value that ends the wait.
fn values(info: &WaitInfo, record: &WaitRecord) -> String {
    let WaitRecord { seen, expected, .. } = record;
    match (&info.on, &info.until) {
        (Watched::Stage, _) => format!(", whose phase of parity {expected} is not complete"),
        (Watched::Variable, _) => String::new(),
        (_, Some(until)) => format!(", which is {seen} and must be {until} {expected}"),
        (_, None) => format!(", where it read {seen}"),
    }
}

/// The records of a ring.
#[derive(Clone, Default, Debug)]
pub(crate) struct Records {
    /// The records that are complete, in the order of their slots.
    pub complete: Vec<WaitRecord>,
    /// The number of records that did not fit.
    pub dropped: u32,
}

/// Reads the records of a ring.
pub(crate) fn records(ring: &[u8]) -> Records {
    let (slots, behind) = ring.split_at_checked(DROPPED as usize).unwrap_or((ring, &[]));
    Records {
        complete: slots.chunks(RECORD_BYTES as usize).filter_map(WaitRecord::read).collect(),
        dropped: behind.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
    }
}

/// Whether this process has kernels on GPUs whose waits are watched.
pub(crate) fn is_watching() -> bool {
    super::ALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter().any(|w| w.strong_count() > 0)
}

/// Describes the watched kernels of this process on GPUs, one on each line, and returns whether a
/// thread has reported a wait. Without watched kernels there is no line.
pub(crate) fn report() -> (bool, Vec<String>) {
    let kernels = on_gpus();
    let kernels: Vec<_> = kernels.iter().map(|(watch, found)| (&*watch.table, found.clone())).collect();
    (kernels.iter().any(|(_, found)| !found.complete.is_empty()), summary(&kernels))
}

#[cfg(test)]
mod tests;
