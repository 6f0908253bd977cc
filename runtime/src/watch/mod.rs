//! Waits of kernels that report themselves: the memory that they write, and the report about it.
//!
//! A kernel that was compiled with watched waits gets a block of device memory and a ring of
//! records in the host's memory ([`weft_abi::watch`]). A thread that waits for longer than the
//! limit writes a record. If a wait of the host exceeds its limit, the error lists the records of
//! all kernels on the PE. If the host does not wait here, a thread finds the records and prints
//! them.

mod reader;
mod report;

pub(crate) use report::{Records, Table, is_watching, records, report, summary};

use crate::cuda::pinned::Pinned;
use crate::cuda::{Device, DeviceTensor};
use crate::error::{Error, LAUNCHER, Result};
use crate::job;
use crate::simulated::Pe;
use cudarc::driver::sys::CUdevice_attribute;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use weft_abi::KernelInfo;
use weft_abi::extent::Values;
use weft_abi::watch::{self as abi, RING_BYTES};
use weft_sim::Name;

/// The limit of a wait on a simulated PE, whose clock counts the instructions of all warps.
const SIMULATED_LIMIT: i64 = 200_000;

/// The value of `WEFT_WATCH`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Waits are not watched.
    Off,
    /// A wait of the host that exceeds its limit fails, and its error lists the waits of the
    /// kernels. If a kernel exceeds the limit while the host does not wait for it, its waits are
    /// printed, and the job ends.
    On,
    /// A wait of the host that exceeds its limit prints the waits of the kernels, and continues.
    /// Waits of kernels are also printed while the host does not wait.
    Report,
}

impl Mode {
    /// The mode that the value of `WEFT_WATCH` names.
    fn parse(value: &str) -> Option<Mode> {
        Some(match value {
            "0" | "off" => Mode::Off,
            "1" | "on" => Mode::On,
            "report" => Mode::Report,
            _ => return None,
        })
    }
}

/// Returns the mode of `WEFT_WATCH`, or none if it is not set.
///
/// # Errors
/// Fails if the word is not a mode (R0201).
fn environment_mode() -> Result<Option<Mode>> {
    let Ok(value) = std::env::var("WEFT_WATCH") else { return Ok(None) };
    Mode::parse(&value).map(Some).ok_or_else(|| {
        let message = format!("WEFT_WATCH is {value:?}, but it must be 0, 1 or report");
        Error::new(LAUNCHER, message)
    })
}

/// Returns whether kernels for a device are compiled with watched waits. Without `WEFT_WATCH`,
/// debug builds watch those on GPUs. Simulated PEs find deadlocks themselves.
///
/// # Errors
/// Fails if `WEFT_WATCH` is not `0`, `1` or `report` (R0201).
pub fn mode(device: &Device) -> Result<Mode> {
    let unsaid = if cfg!(debug_assertions) && !device.is_simulated() { Mode::On } else { Mode::Off };
    Ok(environment_mode()?.unwrap_or(unsaid))
}

/// Whether a wait of the host that exceeds its limit continues.
pub(crate) fn goes_on() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| matches!(environment_mode(), Ok(Some(Mode::Report))))
}

/// The time that a thread waits before it reports: half of the limit on the host's waits, so that
/// the record exists when the host gives up. `WEFT_WATCH_LIMIT` sets another number of seconds.
fn limit() -> Result<Duration> {
    let Ok(text) = std::env::var("WEFT_WATCH_LIMIT") else {
        return Ok(job::Options::from_env()?.timeout / 2);
    };
    let seconds = text.parse().ok().filter(|s: &f64| *s > 0.0);
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        let message = format!("WEFT_WATCH_LIMIT is {text:?}, but it must be a number of seconds above 0");
        Error::new(LAUNCHER, message)
    })
}

/// The time from a record to the limit on the host's waits.
fn rest() -> Duration {
    let timeout = job::Options::from_env().unwrap_or_default().timeout;
    timeout.saturating_sub(limit().unwrap_or_default())
}

/// The memory of one loaded kernel whose waits are watched.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The memory whose address the kernel gets.
    block: DeviceTensor<u8>,
    ring: Ring,
    table: Arc<Table>,
    /// The number of records whose waits have ended.
    ended: AtomicU64,
}

#[derive(Debug)]
enum Ring {
    Gpu(Pinned),
    /// The ring of a simulated PE, which the job's state also knows, since it reports when no
    /// thread can be asked for memory.
    Simulated(Pe, DeviceTensor<u8>),
}

/// All existing ones, for the report.
static ALL: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

impl Watch {
    /// Allocates the memory for a kernel on a device, or returns none if its waits are not watched.
    ///
    /// # Errors
    /// Fails if the limit is not a number (R0201), or if there is not enough memory (R0103, R0302).
    pub fn of(device: &Device, info: &KernelInfo) -> Result<Option<Arc<Watch>>> {
        if info.waits.is_empty() {
            return Ok(None);
        }
        let bytes = RING_BYTES as usize;
        let table = Arc::new(Table::new(info));
        let stream = device.new_stream()?;
        let (ring, address, cycles) = match device.pe() {
            None => {
                let ring = Pinned::zeroed(device, bytes)?;
                let khz = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
                let (address, cycles) = (ring.address(), limit()?.as_secs_f64() * 1e3 * f64::from(khz));
                (Ring::Gpu(ring), address, cycles as i64)
            }
            Some(pe) => {
                let ring = DeviceTensor::from_slice(&vec![0u8; bytes], &stream)?;
                let address = ring.address();
                pe.watch(address, bytes, table.clone());
                (Ring::Simulated(pe.clone(), ring), address, SIMULATED_LIMIT)
            }
        };
        let mut start = vec![0u8; abi::BLOCK_BYTES as usize];
        let fields = [(abi::RING, address.to_le_bytes()), (abi::LIMIT, cycles.to_le_bytes())];
        for (at, value) in fields {
            if let Some(place) = start.get_mut(at as usize..at as usize + value.len()) {
                place.copy_from_slice(&value);
            }
        }
        let block = DeviceTensor::from_slice(&start, &stream)?;
        block.set_name(Name::of_reports());
        let watch = Arc::new(Watch { block, ring, table, ended: AtomicU64::new(0) });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|w| w.strong_count() > 0);
        all.push(Arc::downgrade(&watch));
        Ok(Some(watch))
    }

    /// The address that the kernel gets.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Notes that a launch with this grid and these parameters was enqueued on a stream.
    pub fn launched(&self, grid: [u32; 3], block: &[u8], values: &Arc<Values>) {
        self.table.launched(grid, block, values);
        if let Ring::Gpu(_) = self.ring {
            reader::start();
        }
    }

    /// The GPU, if the kernel is on one.
    fn device(&self) -> Option<&Device> {
        match &self.ring {
            Ring::Gpu(ring) => Some(ring.device()),
            Ring::Simulated(..) => None,
        }
    }

    /// The records so far, on a GPU.
    fn records(&self) -> Records {
        match &self.ring {
            Ring::Gpu(ring) => records(&ring.read()).leave_out(self.ended.load(Ordering::Relaxed)),
            Ring::Simulated(..) => Records::default(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ring::Simulated(pe, ring) = &self.ring {
            pe.unwatch(ring.address());
        }
    }
}

/// The watched kernels of this process on GPUs.
fn live() -> Vec<Arc<Watch>> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(Weak::upgrade).filter(|watch| watch.device().is_some()).collect()
}

/// The number of records of each kernel, by the address of its block.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Counts(BTreeMap<u64, u64>);

impl Counts {
    fn of(kernels: &[(Arc<Watch>, Records)]) -> Counts {
        let count = |(watch, found): &(Arc<Watch>, Records)| (watch.address(), found.count());
        Counts(kernels.iter().map(count).collect())
    }

    /// Whether a kernel has more records than at an earlier time.
    fn exceed(&self, earlier: &Counts) -> bool {
        self.0.iter().any(|(kernel, n)| n > earlier.0.get(kernel).unwrap_or(&0))
    }
}

/// The records that were given to whoever asked last.
static TOLD: Mutex<Counts> = Mutex::new(Counts(BTreeMap::new()));

/// Whether these records were given to somebody who reports them.
fn is_told(counts: &Counts) -> bool {
    !counts.exceed(&TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Notes that all launches on a GPU have ended, and so the waits that were reported there.
pub(crate) fn all_ended(on: &Device) {
    let there = |watch: &Watch| watch.device().is_some_and(|device| device.ordinal() == on.ordinal());
    for (watch, found) in on_gpus().iter().filter(|(watch, _)| there(watch)) {
        watch.ended.store(found.count(), Ordering::Relaxed);
    }
}

/// The watched kernels of this process on GPUs, with their records.
fn on_gpus() -> Vec<(Arc<Watch>, Records)> {
    let with_records = |watch: Arc<Watch>| {
        let found = watch.records();
        (watch, found)
    };
    live().into_iter().map(with_records).collect()
}
