//! The state of a simulated job, and the step that advances its streams.
//!
//! PEs are threads. Their enqueued work waits until every PE's thread is blocked. Then the job's
//! own thread executes the work at the heads of all queues, together on one machine, until some
//! thread can continue. The machine does not run while a thread runs. So the speed of the threads
//! has no influence on the machine.

use super::exchange::Exchanges;
use super::heap::Heap;
use super::order::Order;
use crate::error::{Error, NOT_DONE, PEER_DIED, Result, SIMULATED};
use crate::job::{Doing, words};
use crate::watch::{Records, Table, records, summary};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar};
use std::time::Instant;
use weft_sim::{Finding, GridId, Launch, Machine, Module, SimError, Stats};

/// The result of a step of the machine.
type Carried<T> = std::result::Result<T, SimError>;

/// A stream: its PE, and its number on that PE.
pub(super) type Key = (u32, u32);

/// The operations of a stream.
#[derive(Clone)]
pub(super) enum Work {
    Kernel(Arc<Kernel>),
    Fill {
        address: u64,
        byte: u8,
        bytes: usize,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    /// Records an event; the number counts the event's recordings.
    Record(u64, u64),
    /// Waits until a recording of an event is reached.
    Wait(u64, u64),
}

pub(super) struct Kernel {
    pub module: Module,
    pub entry: String,
    pub launch: Launch,
    /// Whether it begins when the kernel before it on its stream allows this.
    pub dependent: bool,
}

/// The operations of a stream that have not ended.
#[derive(Default)]
pub(super) struct Queue {
    /// The operations, each with the host's knowledge when it was enqueued.
    work: VecDeque<(Work, Arc<Order>)>,
    /// The kernels that have begun, and whether each has ended before one that precedes it. There
    /// can be several if kernels let those after them begin.
    running: VecDeque<(GridId, bool)>,
    knows: Order,
    /// The capture that enqueued work goes to.
    pub capture: Option<u64>,
    /// Whether the stream was dropped, so that it is removed when it is empty.
    pub dropped: bool,
}

impl Queue {
    /// Whether the operation at its head does not need to wait for the end of a kernel.
    fn may_go_on(&self) -> bool {
        let dependent = || matches!(self.work.front(), Some((Work::Kernel(k), _)) if k.dependent);
        self.running.is_empty() || dependent()
    }

    /// Notes that a kernel has ended. This is known when all kernels before it have also ended.
    fn ended(&mut self, key: Key, id: GridId) {
        for (_, ended) in self.running.iter_mut().filter(|(running, _)| *running == id) {
            *ended = true;
        }
        while let Some((id, true)) = self.running.front().copied() {
            self.running.pop_front();
            self.knows.ended(key, id);
        }
    }

    pub fn is_idle(&self) -> bool {
        self.work.is_empty() && self.running.is_empty()
    }
}

/// An event.
#[derive(Default)]
pub(super) struct Moment {
    pub recorded: u64,
    pub reached: u64,
    pub when: Option<Instant>,
    knows: Order,
    /// The capture in which it was recorded last.
    pub capture: Option<u64>,
    /// Whether each launch of the graph that contains it reaches it again.
    pub external: bool,
}

/// Captured work, by stream.
#[derive(Default)]
pub(super) struct Captured {
    pub origin: Key,
    pub branches: BTreeMap<Key, Vec<Work>>,
}

/// The host side of a PE.
#[derive(Default)]
pub(super) struct Host {
    knows: Arc<Order>,
    /// The number of its next stream.
    pub streams: u32,
    /// Whether its thread has ended, or has not begun.
    pub left: bool,
    /// The knowledge of streams that were removed.
    gone: Order,
}

/// The event that a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Stream(Key),
    /// All streams of the PE.
    Device,
    Event(u64, u64),
    /// An exchange, described in words.
    Exchange(String),
}

pub(super) type Answer = Result<Vec<Vec<u8>>>;

pub(super) struct Waiter {
    pub pe: u32,
    pub wait: Wait,
    /// Whether it is the PE's main thread, without which the machine does not run.
    pub counted: bool,
    pub answer: Option<Answer>,
    /// Wakes only this thread.
    pub wake: Arc<Condvar>,
}

/// The reason why the job has ended early.
#[derive(Clone)]
pub(super) struct Failure {
    /// The PE that failed; none if the simulator stopped the kernels.
    pub pe: Option<u32>,
    pub error: Error,
}

/// A ring buffer to which a kernel of a PE writes its waits.
pub(super) struct Watched {
    pub pe: u32,
    pub ring: u64,
    pub bytes: usize,
    pub table: Arc<Table>,
}

pub(super) struct State {
    pub machine: Machine,
    pub seed: u64,
    pub streams: BTreeMap<Key, Queue>,
    pub events: BTreeMap<u64, Moment>,
    pub captures: BTreeMap<u64, Captured>,
    pub hosts: Vec<Host>,
    pub waiters: BTreeMap<u64, Waiter>,
    pub exchanges: Exchanges,
    pub heap: Heap,
    /// The number of threads of PEs that are not blocked.
    pub running: u32,
    /// A counter that grows with every step.
    pub progress: u64,
    pub failed: Option<Failure>,
    pub stopped: Option<SimError>,
    pub stats: Vec<Stats>,
    pub findings: Vec<Finding>,
    pub watched: Vec<Watched>,
    kernels: BTreeMap<GridId, Key>,
    numbers: u64,
    runs: u64,
    /// The number of kernels of the current run.
    begun: usize,
}

/// The least number of kernels that are compared with each other in a race check. More would make
/// each access more expensive.
const COMPARED: usize = 64;

impl State {
    pub fn new(machine: Machine, heap: Heap) -> State {
        let config = machine.config();
        let (seed, n_pes) = (config.seed, config.n_pes as u32);
        State {
            machine,
            seed,
            // The default stream of each PE.
            streams: (0..n_pes).map(|pe| ((pe, 0), Queue::default())).collect(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            hosts: (0..n_pes).map(|_| Host { streams: 1, left: true, ..Host::default() }).collect(),
            waiters: BTreeMap::new(),
            exchanges: Exchanges::default(),
            heap,
            running: 0,
            progress: 0,
            failed: None,
            stopped: None,
            stats: Vec::new(),
            findings: Vec::new(),
            watched: Vec::new(),
            kernels: BTreeMap::new(),
            numbers: 0,
            runs: 0,
            begun: 0,
        }
    }

    /// Returns a new unique number.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Fails if the job has failed.
    pub fn check(&self, pe: u32) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(Failure { pe: None, error }) => Err(error.clone()),
            Some(Failure { pe: Some(failed), error }) => {
                let message = format!("PE {failed} ended: {}", error.message);
                Err(Error::new(PEER_DIED, message).help(match *failed == pe {
                    true => "this PE reported a failure earlier".to_string(),
                    false => format!(
                        "see the error of PE {failed}, which is the cause; PE {pe} ends because of it"
                    ),
                }))
            }
        }
    }

    /// Ends the job, and reports the error to every waiting thread.
    pub fn fail(&mut self, pe: Option<u32>, error: Error) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(Failure { pe, error });
        for queue in self.streams.values_mut() {
            queue.running.clear();
            queue.capture = None;
            queue.work.clear();
        }
        self.kernels.clear();
        let waiting: Vec<u64> = self.waiters.keys().copied().collect();
        for id in waiting {
            let pe = self.waiters.get(&id).map_or(0, |w| w.pe);
            if let Err(e) = self.check(pe) {
                self.answer_waiter(id, Err(e));
            }
        }
    }

    /// Gives a waiting thread its answer, so that it runs again.
    pub fn answer_waiter(&mut self, id: u64, answer: Answer) {
        if let Some(w) = self.waiters.get_mut(&id).filter(|w| w.answer.is_none()) {
            self.running += u32::from(w.counted);
            w.answer = Some(answer);
            w.wake.notify_one();
        }
    }

    pub fn is_satisfied(&self, pe: u32, wait: &Wait) -> bool {
        match wait {
            Wait::Stream(key) => self.streams.get(key).is_none_or(Queue::is_idle),
            Wait::Device => self.streams.range((pe, 0)..=(pe, u32::MAX)).all(|(_, q)| q.is_idle()),
            Wait::Event(id, recording) => self.events.get(id).is_none_or(|e| e.reached >= *recording),
            Wait::Exchange(_) => false,
        }
    }

    /// Adds the completed wait to the knowledge of a PE's host.
    pub fn learn(&mut self, pe: u32, wait: &Wait) {
        let mut knows = (*self.hosts[pe as usize].knows).clone();
        match wait {
            Wait::Stream(key) => {
                if let Some(queue) = self.streams.get(key) {
                    knows.join(&queue.knows);
                }
            }
            Wait::Device => {
                self.streams.range((pe, 0)..=(pe, u32::MAX)).for_each(|(_, q)| knows.join(&q.knows));
                knows.join(&self.hosts[pe as usize].gone);
            }
            Wait::Event(id, _) => {
                if let Some(event) = self.events.get(id) {
                    knows.join(&event.knows);
                }
            }
            Wait::Exchange(_) => {}
        }
        self.hosts[pe as usize].knows = Arc::new(knows);
        self.machine.land_stores();
    }

    /// Joins the knowledge of these hosts.
    pub fn meet(&mut self, pes: &[u32]) {
        let mut all = Order::default();
        pes.iter().for_each(|pe| all.join(&self.hosts[*pe as usize].knows));
        let all = Arc::new(all);
        pes.iter().for_each(|pe| self.hosts[*pe as usize].knows = Arc::clone(&all));
    }

    pub fn is_external(&self, event: u64) -> bool {
        self.events.get(&event).is_some_and(|e| e.external)
    }

    /// Creates a stream that is removed when its work is done.
    pub fn temporary_stream(&mut self, pe: u32) -> Key {
        let host = &mut self.hosts[pe as usize];
        let key = (pe, host.streams);
        host.streams += 1;
        self.streams.insert(key, Queue { dropped: true, ..Queue::default() });
        key
    }

    /// Enqueues an operation on a stream. An operation that takes no time is executed at once if no
    /// other is before it.
    pub fn enqueue(&mut self, key: Key, work: Work) -> Result<()> {
        let knows = Arc::clone(&self.hosts[key.0 as usize].knows);
        if let Some(queue) = self.streams.get_mut(&key) {
            let is_kernel = matches!(work, Work::Kernel(_));
            queue.work.push_back((work, knows));
            if !is_kernel && let Err(e) = self.carry_on(key) {
                self.stop(e);
                return self.check(key.0);
            }
        }
        Ok(())
    }

    /// Starts or executes the operation at the head of a stream, if nothing blocks it. Returns
    /// whether there was one.
    fn carry_on(&mut self, key: Key) -> Carried<bool> {
        let mut any = false;
        loop {
            let Some(queue) = self.streams.get_mut(&key).filter(|q| q.may_go_on()) else { return Ok(any) };
            match queue.work.front() {
                None => return Ok(any),
                Some((Work::Wait(id, recording), _)) => {
                    let event = self.events.get(id);
                    if event.is_some_and(|e| e.reached < *recording) {
                        return Ok(any);
                    }
                    if let Some(event) = event {
                        queue.knows.join(&event.knows);
                    }
                }
                Some(_) => {}
            }
            let Some((work, host)) = queue.work.pop_front() else { return Ok(any) };
            queue.knows.join(&host);
            any = true;
            self.begin(key, work)?;
        }
    }

    fn begin(&mut self, key: Key, work: Work) -> Carried<()> {
        let pe = key.0 as usize;
        let queue = self.streams.entry(key).or_default();
        match work {
            Work::Kernel(kernel) => {
                let after = queue.knows.kernels();
                if !self.machine.is_running() {
                    // Every run of kernels has a different schedule.
                    self.machine
                        .set_seed(self.seed.wrapping_add(self.runs.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                    self.runs += 1;
                }
                let early = queue.running.back().map(|(id, _)| *id);
                let Kernel { module, entry, launch, .. } = &*kernel;
                let id = self.machine.begin_early(module, entry, launch, &after, early)?;
                queue.running.push_back((id, false));
                self.begun += 1;
                self.kernels.insert(id, key);
            }
            Work::Fill { address, byte, bytes } => {
                self.machine.write(pe, address, &vec![byte; bytes])?;
            }
            Work::Copy { to, from, bytes } => {
                let mut data = vec![0; bytes];
                self.machine.read(pe, from, &mut data)?;
                self.machine.write(pe, to, &data)?;
            }
            Work::Record(id, recording) => {
                if let Some(event) = self.events.get_mut(&id) {
                    event.reached = event.reached.max(recording);
                    event.when = Some(Instant::now());
                    event.knows = queue.knows.clone();
                }
            }
            Work::Wait(..) => {}
        }
        Ok(())
    }

    /// Advances the streams until some thread can continue, or gets the reason why it cannot. All
    /// threads of PEs are blocked.
    pub fn conduct(&mut self) {
        loop {
            self.progress += 1;
            if let Err(e) = self.start_all() {
                return self.stop(e);
            }
            // With checks, kernels are also compared with those that threads launch next.
            if !self.is_checked() || self.begun >= COMPARED {
                self.settle();
            }
            if self.release() {
                return;
            }
            self.settle();
            if self.release() {
                return;
            }
            if self.kernels.is_empty() {
                return self.stuck();
            }
            match self.machine.advance() {
                Ok(ended) => ended.into_iter().for_each(|id| self.end(id)),
                Err(e) => return self.stop(e),
            }
        }
    }

    fn start_all(&mut self) -> Carried<()> {
        loop {
            let mut any = false;
            let keys: Vec<Key> = self.streams.keys().copied().collect();
            for key in keys {
                any |= self.carry_on(key)?;
            }
            if !any {
                let State { streams, hosts, .. } = self;
                streams.retain(|(pe, _), q| {
                    let stays = !(q.dropped && q.is_idle());
                    if !stays {
                        hosts[*pe as usize].gone.join(&q.knows);
                    }
                    stays
                });
                return Ok(());
            }
        }
    }

    fn end(&mut self, id: GridId) {
        if let Some(key) = self.kernels.remove(&id)
            && let Some(queue) = self.streams.get_mut(&key)
        {
            queue.ended(key, id);
        }
    }

    fn is_checked(&self) -> bool {
        self.machine.config().check.is_some()
    }

    /// Ends a run when no kernel runs: its results are known, and later kernels need no order with
    /// it.
    pub fn settle(&mut self) {
        if !self.kernels.is_empty() || !self.machine.is_running() {
            return;
        }
        self.begun = 0;
        let settled = self.machine.settle();
        self.findings.extend(self.machine.take_findings());
        match settled {
            Ok(stats) if stats.warp_instructions > 0 => self.stats.push(stats),
            Ok(_) => {}
            Err(e) => return self.stop(e),
        }
        self.streams.values_mut().for_each(|q| q.knows.clear());
        self.events.values_mut().for_each(|e| e.knows.clear());
        for host in &mut self.hosts {
            host.knows = Arc::default();
            host.gone.clear();
        }
    }

    /// Handles an error by which the simulator has stopped the kernels.
    fn stop(&mut self, e: SimError) {
        self.findings.extend(self.machine.take_findings());
        let mut error = from_sim(&e);
        let who = if self.watched.is_empty() { self.waits() } else { words(&self.doing()) };
        if !who.is_empty() {
            error.message = format!("{}\n{who}", error.message);
        }
        self.stopped = Some(e);
        self.fail(None, error);
    }

    /// Releases the threads whose waits have ended.
    fn release(&mut self) -> bool {
        let met = |(id, w): (&u64, &Waiter)| {
            self.is_satisfied(w.pe, &w.wait).then_some((*id, w.pe, w.wait.clone()))
        };
        let waiting = self.waiters.iter().filter(|(_, w)| w.answer.is_none());
        let met: Vec<_> = waiting.filter_map(met).collect();
        for (id, pe, wait) in &met {
            self.learn(*pe, wait);
            self.answer_waiter(*id, Ok(Vec::new()));
        }
        self.waiters.values().any(|w| w.answer.is_some())
    }

    /// Handles a state in which threads wait and nothing can continue.
    fn stuck(&mut self) {
        let waits = self.waits();
        let waiting = self.waiters.iter().filter(|(_, w)| w.answer.is_none());
        let waiting: Vec<(u64, bool)> =
            waiting.map(|(id, w)| (*id, matches!(w.wait, Wait::Exchange(_)))).collect();
        for (id, exchange) in waiting {
            if exchange {
                let message = format!("all other PEs wait or have ended:\n{waits}");
                self.give_up(id, &message);
            } else {
                let message = format!("no remaining work can end this wait:\n{waits}");
                self.answer_waiter(id, Err(Error::new(NOT_DONE, message)));
            }
        }
    }

    /// Describes, for each PE, the waits of threads of watched kernels, or the last launch of a PE
    /// that reports no wait, and the state of its host. PEs on GPUs give the same answer.
    fn doing(&self) -> Vec<Option<Doing>> {
        let mut by_pe: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for w in &self.watched {
            let mut ring = vec![0; w.bytes];
            let read = self.machine.read(w.pe as usize, w.ring, &mut ring);
            let found = read.map_or_else(|_| Records::default(), |()| records(&ring));
            by_pe.entry(w.pe).or_default().push((&*w.table, found));
        }
        let hosts = self.host_waits();
        let of = |pe: u32| {
            let kernels = by_pe.remove(&pe).unwrap_or_default();
            let waits = kernels.iter().any(|(_, found)| !found.complete.is_empty());
            let mut lines = summary(&kernels);
            lines
                .extend(hosts.iter().filter(|(of, _)| *of == pe).map(|(_, what)| format!("its host {what}")));
            Some(Doing { waits, lines })
        };
        (0..).take(self.hosts.len()).map(of).collect()
    }

    /// Describes the waits of the PEs' hosts, and which of them have ended.
    fn host_waits(&self) -> Vec<(u32, String)> {
        let waiting = self.waiters.values().filter(|w| w.answer.is_none());
        let mut lines: Vec<(u32, String)> = waiting.map(|w| (w.pe, self.words(w.pe, &w.wait))).collect();
        lines.extend((0..).zip(&self.hosts).filter(|(_, h)| h.left).map(|(pe, _)| (pe, "has ended".into())));
        lines.sort();
        lines
    }

    /// A text that says who waits for what, with a line for each PE.
    pub fn waits(&self) -> String {
        self.host_waits().iter().map(|(pe, what)| format!("PE {pe} {what}")).collect::<Vec<_>>().join("\n")
    }

    fn words(&self, pe: u32, wait: &Wait) -> String {
        match wait {
            Wait::Stream((_, n)) => format!("waits for its stream {n}"),
            Wait::Device => {
                let busy = self.streams.range((pe, 0)..=(pe, u32::MAX)).filter(|(_, q)| !q.is_idle());
                let busy: Vec<String> = busy.map(|((_, n), _)| n.to_string()).collect();
                format!("waits for its streams {}", busy.join(", "))
            }
            Wait::Event(..) => "waits for an event".into(),
            Wait::Exchange(what) => format!("waits in `{what}` for the other PEs"),
        }
    }
}

/// Converts an error of the simulator.
pub(super) fn from_sim(e: &SimError) -> Error {
    match e.code {
        weft_sim::codes::MEMORY_LIMIT => {
            Error::new(crate::error::OUT_OF_MEMORY, e.message.clone()).help(e.help.clone())
        }
        _ => Error::new(SIMULATED, e.to_string()),
    }
}
