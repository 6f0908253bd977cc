//! The PEs of a simulated job, which are threads that share one machine, and their waits.

use super::exchange::Exchanges;
use super::heap::Heap;
use super::modules::Modules;
use super::state::{Answer, Kernel, Key, Queue, State, Wait, Waiter, Watched, Work, from_sim};
use crate::error::{COLLECTIVE, Error, FINALIZED, NOT_DONE, NOT_IN_TEAM, OUT_OF_MEMORY, Result};
use crate::watch::Table;
use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use weft_sim::{Config, Machine, Name};

/// The settings of a job that its PEs need.
pub(super) struct Settings {
    /// The number of PEs of a node, which reach each other by loads and stores.
    pub node: u32,
    /// The number of PEs of a group, within which kernels that can choose use direct loads and
    /// stores.
    pub reach: u32,
    pub capability: (u32, u32),
    pub multicast_of_one: bool,
    pub modules: Modules,
    pub config: Config,
    /// The limit on waits for a thread that does not arrive.
    pub bound: Duration,
}

/// The jobs of this process that still exist, by number.
static JOBS: Mutex<Vec<(i32, Weak<Job>)>> = Mutex::new(Vec::new());

/// The largest number of PEs of a job. A device's number in the process is a multiple of this
/// number, plus its PE.
const MAX_PES: i32 = 4096;

pub(super) struct Job {
    number: i32,
    pub settings: Settings,
    state: Mutex<State>,
    /// Signals that no thread of a PE runs any more, or that one has ended.
    idle: Condvar,
}

thread_local! {
    /// Whether this thread is the main thread of a PE. The machine does not run while such a thread
    /// runs.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// The longest wait for other threads that PEs have started themselves.
const GRACE: Duration = Duration::from_millis(20);

impl Job {
    pub fn new(settings: Settings) -> Result<Arc<Job>> {
        let mut machine = Machine::new(settings.config.clone()).map_err(|e| from_sim(&e))?;
        let heap = Heap::new(&mut machine, settings.node)?;
        let state = Mutex::new(State::new(machine, heap));
        let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|(_, job)| job.strong_count() > 0);
        let number = jobs.last().map_or(0, |(last, _)| last + 1);
        let job = Arc::new(Job { number, settings, state, idle: Condvar::new() });
        jobs.push((number, Arc::downgrade(&job)));
        Ok(job)
    }

    pub fn n_pes(&self) -> u32 {
        self.settings.config.n_pes as u32
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks all PEs as running, and forgets what an earlier run left open.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.running = self.n_pes();
        // The open exchanges of an earlier run are over.
        state.exchanges = Exchanges::default();
        state.hosts.iter_mut().for_each(|host| host.left = false);
    }

    /// Advances the streams whenever all PEs' threads wait, until all threads have ended. One
    /// thread does this for all, so that the machine's memory stays close to its core.
    pub fn conduct(&self) {
        let mut state = self.lock();
        while state.hosts.iter().any(|host| !host.left) {
            if state.running == 0 {
                state.conduct();
            } else {
                state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits among the other waiting threads until it gets an answer.
    fn blocked(&self, mut state: MutexGuard<'_, State>, id: u64, bound: Option<Duration>) -> Answer {
        let counted = state.waiters.get(&id).is_some_and(|w| w.counted);
        // (If it already has an answer, it was counted as running again.)
        state.running -= u32::from(counted);
        if state.running == 0 {
            self.idle.notify_one();
        }
        let Some(wake) = state.waiters.get(&id).map(|w| w.wake.clone()) else { return Ok(Vec::new()) };
        let mut since = (state.progress, Instant::now());
        loop {
            if let Some(answer) = state.waiters.get_mut(&id).and_then(|w| w.answer.take()) {
                state.waiters.remove(&id);
                return answer;
            }
            if since.0 != state.progress {
                since = (state.progress, Instant::now());
            }
            let late = bound.is_some_and(|bound| since.1.elapsed() >= bound);
            if !counted && since.1.elapsed() >= GRACE {
                state.conduct();
            } else if late {
                self.give_up(&mut state, id);
            } else {
                let pause = bound.map_or(GRACE, |bound| bound.saturating_sub(since.1.elapsed()).max(GRACE));
                let pause = if counted { pause } else { GRACE };
                let waited = wake.wait_timeout(state, pause);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Handles a PE's thread that has not arrived within the limit.
    fn give_up(&self, state: &mut State, id: u64) {
        let seconds = self.settings.bound.as_secs_f32();
        let waits = state.waits();
        let Some(w) = state.waiters.get(&id) else { return };
        if matches!(w.wait, Wait::Exchange(_)) {
            return state.give_up(id, &format!("within {seconds} s\n{waits}"));
        }
        let message =
            format!("a PE that the simulated machine waits for did not finish within {seconds} s:\n{waits}");
        let help = "set WEFT_TIMEOUT to more seconds if the work takes longer";
        state.answer_waiter(id, Err(Error::new(NOT_DONE, message).help(help)));
    }
}

/// A PE of a simulated job.
#[derive(Clone)]
pub(crate) struct Pe {
    pub(super) job: Arc<Job>,
    pub(super) pe: u32,
}

impl PartialEq for Pe {
    fn eq(&self, other: &Pe) -> bool {
        Arc::ptr_eq(&self.job, &other.job) && self.pe == other.pe
    }
}

impl Pe {
    /// The number of its device, which is unique in this process.
    pub fn number(&self) -> i32 {
        self.job.number.wrapping_mul(MAX_PES).wrapping_add(self.pe as i32)
    }

    /// The PE whose device has this number.
    pub fn of_number(number: i32) -> Option<Pe> {
        let (job, pe) = (number.div_euclid(MAX_PES), number.rem_euclid(MAX_PES) as u32);
        let jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
        let job = jobs.iter().find(|(n, _)| *n == job)?.1.upgrade()?;
        (pe < job.n_pes()).then_some(Pe { job, pe })
    }

    pub fn rank(&self) -> u32 {
        self.pe
    }

    pub fn n_pes(&self) -> u32 {
        self.job.n_pes()
    }

    pub fn config(&self) -> &Config {
        &self.job.settings.config
    }

    /// The compute capability of its device.
    pub fn capability(&self) -> (u32, u32) {
        self.job.settings.capability
    }

    pub fn bound(&self) -> Duration {
        self.job.settings.bound
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.job.lock();
        state.check(self.pe)?;
        Ok(state)
    }

    /// Makes this thread the main thread of the PE until [`leave`](Pe::leave).
    pub(super) fn enter(&self) {
        OWN.set(true);
    }

    /// Notes that the PE's main thread has ended.
    pub(super) fn leave(&self) {
        OWN.set(false);
        let mut state = self.job.lock();
        state.hosts[self.pe as usize].left = true;
        state.running -= 1;
        state.settle_exchanges();
        if state.hosts.iter().all(|host| host.left) {
            state.settle();
        }
        self.job.idle.notify_one();
    }

    pub(super) fn wait(&self, wait: Wait) -> Result<()> {
        if std::thread::panicking() {
            return Err(Error::new(NOT_DONE, "a thread that panics waits for nothing"));
        }
        let mut state = self.lock()?;
        if let Wait::Stream(key) = wait
            && state.streams.get(&key).is_some_and(|q| q.capture.is_some())
        {
            return Err(Error::new(
                crate::error::CUDA,
                "the stream is being captured, so the host cannot wait for it",
            ));
        }
        if state.is_satisfied(self.pe, &wait) {
            state.learn(self.pe, &wait);
            return Ok(());
        }
        let id = self.enlist(&mut state, wait);
        self.job.blocked(state, id, Some(self.bound())).map(drop)
    }

    fn enlist(&self, state: &mut State, wait: Wait) -> u64 {
        let id = state.number();
        let (counted, wake) = (OWN.get(), Arc::default());
        state.waiters.insert(id, Waiter { pe: self.pe, wait, counted, answer: None, wake });
        id
    }

    /// Waits for all work of the PE.
    pub fn wait_for_device(&self) -> Result<()> {
        self.wait(Wait::Device)
    }

    /// Exchanges bytes with other PEs: see [`Control::exchange`](crate::job::Control::exchange).
    pub fn exchange(&self, members: &[u32], what: &str, payload: &[u8], patient: bool) -> Answer {
        let sound = members.windows(2).all(|pair| pair[0] < pair[1])
            && members.last().is_some_and(|m| *m < self.n_pes());
        if !sound || members.binary_search(&self.pe).is_err() {
            let message = format!("PE {} of {} called `{what}` among {members:?}", self.pe, self.n_pes());
            return Err(Error::new(NOT_IN_TEAM, message)
                .help("list the PEs of the team in ascending order, and include this PE"));
        }
        let mut state = self.lock()?;
        if state.hosts[self.pe as usize].left {
            let message = format!("PE {}: a collective call after the end of the job", self.pe);
            return Err(Error::new(FINALIZED, message));
        }
        let id = self.enlist(&mut state, Wait::exchange(what));
        state.come(self.pe, id, members, what, payload);
        self.job.blocked(state, id, (!patient).then_some(self.bound()))
    }

    /// Reports a failure of the PE to all others.
    pub fn fail(&self, why: &str) {
        self.job.lock().fail(Some(self.pe), Error::new(COLLECTIVE, why));
    }

    /// The first failure, as the PE and the reason.
    pub fn died(&self) -> Option<(u32, String)> {
        let failed = self.job.lock().failed.clone()?;
        Some((failed.pe.unwrap_or(self.pe), failed.error.message))
    }

    /// The free and the total memory of one PE in bytes.
    pub fn memory(&self) -> (usize, usize) {
        let state = self.job.lock();
        let total = self.config().memory_limit / u64::from(self.n_pes());
        let free = state.machine.room(Some(self.pe as usize)).min(total);
        (free as usize, total as usize)
    }

    /// The size of the largest possible symmetric allocation in bytes.
    pub fn symmetric_room(&self) -> usize {
        let total = self.config().memory_limit / u64::from(self.n_pes());
        self.job.lock().machine.room(None).min(total) as usize
    }

    pub fn alloc(&self, bytes: usize) -> Result<u64> {
        let mut state = self.lock()?;
        let made = state.machine.alloc(self.pe as usize, "device memory", bytes.max(1) as u64, 256);
        made.map_err(|e| {
            let (free, total) = (state.machine.room(Some(self.pe as usize)), self.config().memory_limit);
            let message = format!(
                "simulated PE {} cannot allocate a tensor of {bytes} bytes; {free} of the {total} bytes of all PEs are free",
                self.pe
            );
            Error::new(OUT_OF_MEMORY, message).help(e.help)
        })
    }

    /// Sets the name of the PE's own memory at an address.
    pub fn set_name(&self, address: u64, name: Name) {
        self.job.lock().machine.set_private_name(self.pe as usize, address, name);
    }

    pub fn free(&self, address: u64) {
        // Memory that is already gone needs no action.
        let _ = self.job.lock().machine.free(self.pe as usize, address);
    }

    /// Adds the waits that a kernel of the PE writes to a ring at an address to the job's reports.
    pub fn watch(&self, ring: u64, bytes: usize, table: Arc<Table>) {
        self.job.lock().watched.push(Watched { pe: self.pe, ring, bytes, table });
    }

    /// Removes a ring that is freed.
    pub fn unwatch(&self, ring: u64) {
        self.job.lock().watched.retain(|w| (w.pe, w.ring) != (self.pe, ring));
    }

    /// Allocates memory that can be registered, in multiples of a granularity.
    pub fn map(&self, bytes: usize) -> Result<u64> {
        let address = self.alloc(bytes)?;
        self.lock()?.heap.mappings.insert((self.pe, address), bytes);
        Ok(address)
    }

    pub fn unmap(&self, address: u64) {
        self.job.lock().heap.mappings.remove(&(self.pe, address));
        self.free(address);
    }

    /// Writes memory. No earlier work of the PE on it is pending.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<()> {
        self.lock()?.machine.write(self.pe as usize, address, data).map_err(|e| from_sim(&e))
    }

    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<()> {
        self.lock()?.machine.read(self.pe as usize, address, data).map_err(|e| from_sim(&e))
    }

    pub fn new_stream(&self) -> Result<super::Stream> {
        let mut state = self.lock()?;
        let host = &mut state.hosts[self.pe as usize];
        let key: Key = (self.pe, host.streams);
        host.streams += 1;
        state.streams.insert(key, Queue::default());
        Ok(super::Stream::new(self.clone(), key))
    }

    pub fn default_stream(&self) -> super::Stream {
        super::Stream::new(self.clone(), (self.pe, 0))
    }

    pub(super) fn enqueue(&self, key: Key, work: Work) -> Result<()> {
        let mut state = self.lock()?;
        let capture = state.streams.get(&key).and_then(|q| q.capture);
        match capture.and_then(|id| state.captures.get_mut(&id)) {
            Some(captured) => {
                captured.branches.entry(key).or_default().push(work);
                Ok(())
            }
            None => state.enqueue(key, work),
        }
    }

    pub(super) fn enqueue_kernel(&self, key: Key, kernel: Kernel) -> Result<()> {
        self.enqueue(key, Work::Kernel(Arc::new(kernel)))
    }
}

impl std::fmt::Debug for Pe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "simulated PE {} of {}", self.pe, self.n_pes())
    }
}
