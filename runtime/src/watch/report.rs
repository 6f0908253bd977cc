//! Describes the records of waits in words.

use super::on_gpus;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weft_abi::extent::Values;
use weft_abi::watch::{DROPPED, RECORD_BYTES, WaitInfo, WaitRecord, Watched};
use weft_abi::{Extents, KernelInfo, ParamKind};

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
    /// The numbers on which layouts depend.
    values: Option<Arc<Values>>,
}

impl Table {
    pub fn new(info: &KernelInfo) -> Table {
        Table { info: info.clone(), last: Mutex::default() }
    }

    pub fn launched(&self, grid: [u32; 3], block: &[u8], values: &Arc<Values>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let order = LAUNCHES.fetch_add(1, Ordering::Relaxed) + 1;
        let values = Some(Arc::clone(values));
        *last = Launch { count: last.count + 1, order, grid, block: block.to_vec(), values };
    }

    fn last(&self) -> Launch {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Describes a PE's records of the newest launch with records: one line for each wait, one with
    /// the number of records that were dropped, and one with the arguments.
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
        let mut lines: Vec<_> = lines.chain(dropped).collect();
        if !lines.is_empty() && last.count > 0 {
            let (name, arguments) = (&self.info.name, self.arguments(&last));
            lines.push(format!("the host launched `{name}` last with {arguments}"));
        }
        lines
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
            let (bytes, layout) = match &p.kind {
                ParamKind::Tensor { dtype, layout, .. } => (u64::from(dtype.bytes()), Some(layout)),
                ParamKind::Barrier => (4, None),
                _ => return None,
            };
            let base = last.block.get(p.offset as usize..)?.first_chunk().map(|b| u64::from_le_bytes(*b))?;
            let named = matches!(&info.on, Watched::Parameter(name) if *name == p.name);
            let element = || element(&p.name, (record.address - base) / bytes, layout, last);
            (base > 0 && base <= record.address).then(|| (named, base, element()))
        });
        // Use the parameter that the code names, or else the one that begins last before the
        // address.
        let found = place.max_by_key(|(named, base, ..)| (*named, *base));
        match (&info.on, found) {
            (Watched::Stage, _) => "a stage of a pipeline".into(),
            (Watched::Variable, _) => "a variable that an NVSHMEM function tests".into(),
            (Watched::Parameter(name), _) if record.address == 0 => format!("`{name}`"),
            (_, Some((_, _, element))) if record.address != 0 => element,
            (_, _) => format!("memory at {:#x}", record.address),
        }
    }

    /// Describes the newest launch by the host.
    fn launch_words(&self) -> Option<String> {
        let last = self.last();
        let (name, arguments) = (&self.info.name, self.arguments(&last));
        (last.count > 0).then(|| format!("`{name}`, launch {} with {arguments}", last.count))
    }

    /// The grid of a launch and the numbers among its arguments, which distinguish launches of
    /// different sizes.
    fn arguments(&self, last: &Launch) -> String {
        let number = |p: &weft_abi::ParamInfo| match p.kind {
            ParamKind::Scalar { dtype, .. } => {
                let bytes = last.block.get(p.offset as usize..(p.offset + p.size) as usize)?;
                Some(format!(", {} = {}", p.name, dtype.text(bytes)?))
            }
            _ => None,
        };
        let numbers: String = self.info.params.iter().filter_map(number).collect();
        format!("grid {:?}{numbers}", last.grid)
    }
}

/// Names the element of a tensor at this offset in elements by its coordinate, as the simulator
/// does. A barrier's counters have no layout.
fn element(name: &str, at: u64, layout: Option<&Extents>, last: &Launch) -> String {
    let known = layout.zip(last.values.as_deref()).and_then(|(l, values)| l.layout(values).ok());
    let coordinate = known.and_then(|layout| layout.coordinate(i64::try_from(at).ok()?));
    match coordinate {
        Some(coordinate) => {
            let indices: Vec<String> = coordinate.iter().map(i64::to_string).collect();
            format!("`{name}[{}]`", indices.join(", "))
        }
        None if layout.is_some_and(|l| l.shape.rank() > 1) => format!("element {at} of `{name}`"),
        None => format!("`{name}[{at}]`"),
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
    /// The number of records of waits that have ended since, which are left out.
    pub ended: u64,
}

impl Records {
    /// The number of waits that were reported so far.
    pub fn count(&self) -> u64 {
        self.ended + self.complete.len() as u64 + u64::from(self.dropped)
    }

    /// Leaves out the first records, whose waits have ended.
    pub fn leave_out(mut self, ended: u64) -> Records {
        let slots = usize::try_from(ended).unwrap_or(usize::MAX).min(self.complete.len());
        self.complete.drain(..slots);
        self.dropped = self.dropped.saturating_sub(u32::try_from(ended - slots as u64).unwrap_or(u32::MAX));
        Records { ended, ..self }
    }
}

/// Reads the records of a ring.
pub(crate) fn records(ring: &[u8]) -> Records {
    let (slots, behind) = ring.split_at_checked(DROPPED as usize).unwrap_or((ring, &[]));
    Records {
        complete: slots.chunks(RECORD_BYTES as usize).filter_map(WaitRecord::read).collect(),
        dropped: behind.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
        ended: 0,
    }
}

/// Whether this process has kernels on GPUs whose waits are watched.
pub(crate) fn is_watching() -> bool {
    super::ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|w| w.strong_count() > 0)
}

/// Describes the watched kernels of this process on GPUs, one on each line, and returns whether a
/// thread has reported a wait. Without watched kernels there is no line.
pub(crate) fn report() -> (bool, Vec<String>) {
    let kernels = on_gpus();
    *super::TOLD.lock().unwrap_or_else(PoisonError::into_inner) = super::Counts::of(&kernels);
    let kernels: Vec<_> = kernels.iter().map(|(watch, found)| (&*watch.table, found.clone())).collect();
    (kernels.iter().any(|(_, found)| !found.complete.is_empty()), summary(&kernels))
}

#[cfg(test)]
mod tests;
