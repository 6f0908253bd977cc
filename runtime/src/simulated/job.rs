//! The PEs of a simulated job: threads that share one machine, and how they wait.

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

/// What a job is made with, as its PEs ask for it.
pub(super) struct Settings {
    /// PEs of a node: those that reach each other by loads and stores.
    pub node: u32,
    /// PEs of a group within which kernels that have the choice carry operations out in place.
    pub reach: u32,
    pub capability: (u32, u32),
    pub multicast_of_one: bool,
    pub modules: Modules,
    pub config: Config,
    /// The bound of waits for a thread that does not come.
    pub bound: Duration,
}

/// Jobs of this process that are still there, by number.
static JOBS: Mutex<Vec<(i32, Weak<Job>)>> = Mutex::new(Vec::new());

/// Most PEs of a job: a device's number in the process is a multiple of this, and its PE.
const MOST_PES: i32 = 4096;

pub(super) struct Job {
    number: i32,
    pub settings: Settings,
    state: Mutex<State>,
    /// No thread of a PE runs any more, or one has ended.
    idle: Condvar,
}

thread_local! {
    /// Whether this thread is a PE's own: the machine does not go on while it runs.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Threads that PEs have started themselves are not waited for longer than this.
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
        // Nothing of the state is half changed where code can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks all PEs as running, and forgets what an earlier run left open.
    pub fn begin(&self) {
        let mut state = self.lock();
        state.running = self.n_pes();
        // What a run before left open is over.
        state.exchanges = Exchanges::default();
        state.hosts.iter_mut().for_each(|host| host.left = false);
    }

    /// Carries the streams on whenever all PEs' threads wait, until all of them have ended. One thread does so for all:
    /// the machine's memory stays near its core.
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

    /// Waits in its place among those that wait, until it is answered.
    fn blocked(&self, mut state: MutexGuard<'_, State>, id: u64, bound: Option<Duration>) -> Answer {
        let counted = state.waiters.get(&id).is_some_and(|w| w.counted);
        // (Where it has been answered already, it was counted as running again.)
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

    /// A PE's thread has not come within the bound.
    fn give_up(&self, state: &mut State, id: u64) {
        let seconds = self.settings.bound.as_secs_f32();
        let waits = state.waits();
        let Some(w) = state.waiters.get(&id) else { return };
        if matches!(w.wait, Wait::Exchange(_)) {
            return state.give_up(id, &format!("within {seconds} s\n{waits}"));
        }
        let message =
            format!("a PE that the simulated machine waits for is not done after {seconds} s:\n{waits}");
        let help = "WEFT_TIMEOUT sets the bound in seconds, for work that takes longer";
        state.tell(id, Err(Error::new(NOT_DONE, message).help(help)));
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
    /// The number of its device, which no other of this process has.
    pub fn number(&self) -> i32 {
        self.job.number.wrapping_mul(MOST_PES).wrapping_add(self.pe as i32)
    }

    /// The PE whose device has a number.
    pub fn of_number(number: i32) -> Option<Pe> {
        let (job, pe) = (number.div_euclid(MOST_PES), number.rem_euclid(MOST_PES) as u32);
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

    /// This thread is the PE's own until [`leave`](Pe::leave).
    pub(super) fn enter(&self) {
        OWN.set(true);
    }

    /// The PE's thread has ended.
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
                "the stream is being captured, and cannot be waited for",
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

    /// Waits for all that the PE was given.
    pub fn wait_for_device(&self) -> Result<()> {
        self.wait(Wait::Device)
    }

    /// A step with other PEs: see [`Control::exchange`](crate::job::Control::exchange).
    pub fn exchange(&self, members: &[u32], what: &str, payload: &[u8], patient: bool) -> Answer {
        let sound = members.windows(2).all(|pair| pair[0] < pair[1])
            && members.last().is_some_and(|m| *m < self.n_pes());
        if !sound || members.binary_search(&self.pe).is_err() {
            let message = format!("PE {} of {} called `{what}` among {members:?}", self.pe, self.n_pes());
            return Err(Error::new(NOT_IN_TEAM, message)
                .help("list the PEs of the team in ascending order, this PE among them"));
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

    /// The PE fails: all others hear of it.
    pub fn fail(&self, why: &str) {
        self.job.lock().fail(Some(self.pe), Error::new(COLLECTIVE, why));
    }

    /// The first failure, if any: which PE, and why.
    pub fn died(&self) -> Option<(u32, String)> {
        let failed = self.job.lock().failed.clone()?;
        Some((failed.pe.unwrap_or(self.pe), failed.error.message))
    }

    /// Bytes of memory of one PE: (free, total).
    pub fn memory(&self) -> (usize, usize) {
        let state = self.job.lock();
        let total = self.config().memory_limit / u64::from(self.n_pes());
        let free = state.machine.room(Some(self.pe as usize)).min(total);
        (free as usize, total as usize)
    }

    /// Bytes that a symmetric allocation has room for.
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
                "simulated PE {} has no room for a tensor of {bytes} bytes; {free} are free of the {total} of all PEs",
                self.pe
            );
            Error::new(OUT_OF_MEMORY, message).help(e.help)
        })
    }

    /// Names the PE's own memory that begins at an address.
    pub fn set_name(&self, address: u64, name: Name) {
        self.job.lock().machine.set_private_name(self.pe as usize, address, name);
    }

    pub fn free(&self, address: u64) {
        // What is gone already needs no end.
        let _ = self.job.lock().machine.free(self.pe as usize, address);
    }

    /// Lets the job's reports contain the waits that a kernel of the PE writes to a ring at an address.
    pub fn watch(&self, ring: u64, bytes: usize, table: Arc<Table>) {
        self.job.lock().watched.push(Watched { pe: self.pe, ring, bytes, table });
    }

    /// The ring is freed.
    pub fn unwatch(&self, ring: u64) {
        self.job.lock().watched.retain(|w| (w.pe, w.ring) != (self.pe, ring));
    }

    /// Memory that can be registered: whole multiples of a granularity.
    pub fn map(&self, bytes: usize) -> Result<u64> {
        let address = self.alloc(bytes)?;
        self.lock()?.heap.mappings.insert((self.pe, address), bytes);
        Ok(address)
    }

    pub fn unmap(&self, address: u64) {
        self.job.lock().heap.mappings.remove(&(self.pe, address));
        self.free(address);
    }

    /// Writes memory; nothing that the PE was given before is under way on it.
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
