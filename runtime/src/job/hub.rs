//! The hub in PE 0: admits the PEs, matches their calls, and tells all PEs when one is gone.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::control::lock;
use super::door::{self, Door};
use super::socket::{Link, Reader};
use super::spawn::Parent;
use super::wire::{self, Call, Claim, Reply, Request};
use super::{ProcessRank, pes};

/// The time that PE 0 stays to report a death to all.
const TELL: Duration = Duration::from_secs(1);
/// The largest size of a PE's calls that the hub holds while others have not made theirs, in bytes.
const HELD_BYTES: usize = 2 * wire::MAX_FRAME;
/// The largest number of such calls of a PE, each of which blocks a thread of the PE.
const HELD_CALLS: usize = 4096;
/// The largest size of a text that a PE sends in bytes: the name of a call, or the reason of a
/// failure.
const TEXT: usize = 64 << 10;

/// The hub. Dropping it closes every connection and frees the address.
pub(super) struct Hub {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    size: u32,
    pub timeout: Duration,
    pub door: Door,
    parent: Option<Parent>,
    /// The listener, until all PEs have arrived.
    listener: Mutex<Option<Arc<Socket>>>,
    state: Mutex<State>,
    /// This lock is held while frames are sent, and taken before the state is unlocked. So frames
    /// go out in the order of the state's changes, and no death overtakes the end of an earlier
    /// exchange.
    sending: Mutex<()>,
    /// Signals a new call, the leaving of a PE, or the end of the hub.
    changed: Condvar,
}

struct State {
    seats: Vec<Seat>,
    /// The rounds by their members in ascending order.
    groups: BTreeMap<Vec<u32>, VecDeque<Round>>,
    death: Option<(u32, String)>,
    /// Whether all PEs know of the death.
    told: bool,
    closed: bool,
}

enum Seat {
    Empty,
    Taken(Arc<Link>),
    /// The PE has said goodbye.
    Left,
}

/// One exchange. A member's k-th call in a group belongs to the group's k-th round. The members in
/// `came` of one round are a superset of those of the next.
struct Round {
    since: Instant,
    came: BTreeMap<u32, Call>,
    /// The reason why it will not complete; the members that have arrived were told.
    failed: Option<String>,
}

impl Round {
    /// Whether a member waits without a limit for the others.
    fn is_patient(&self) -> bool {
        self.came.values().any(|call| call.patient)
    }
}

/// A frame for a PE, sent when the state is no longer locked.
type Mail = Vec<(Arc<Link>, Reply)>;

impl Hub {
    /// Starts the threads, and returns PE 0's own connection.
    pub fn start(
        place: &ProcessRank,
        listener: Option<Socket>,
        timeout: Duration,
        parent: Option<Parent>,
    ) -> io::Result<(Hub, Socket)> {
        let seats = (0..place.size).map(|_| Seat::Empty).collect();
        let state = State { seats, groups: BTreeMap::new(), death: None, told: false, closed: false };
        let shared = Arc::new(Shared {
            size: place.size,
            timeout,
            door: Door::new(place),
            parent,
            listener: Mutex::default(),
            state: Mutex::new(state),
            sending: Mutex::new(()),
            changed: Condvar::new(),
        });
        let mut hub = Hub { shared: shared.clone(), accepting: None };
        let (mine, theirs) = Link::pair()?;
        shared.clone().serve_this_process(place, theirs)?;
        if let Some(listener) = listener.map(Arc::new) {
            *lock(&shared.listener) = Some(listener.clone());
            let shared = shared.clone();
            hub.accepting = Some(spawn("weft-hub-accept", move || door::attend(&shared, &listener))?);
        }
        spawn("weft-hub-clock", move || shared.clock())?;
        Ok((hub, mine))
    }

    /// Reports a failure of PE 0. When this function returns, all others know.
    pub fn fail(&self, message: &str) {
        self.shared.die(0, message.into());
        drop(self.wait(TELL, State::is_telling));
    }

    /// Waits until every PE has said goodbye or one died, at most for the timeout, and then ends in
    /// order.
    pub fn goodbye(&self) {
        let mut state = self.wait(self.shared.timeout, |state| {
            state.is_telling()
                || state.death.is_none() && !state.seats.iter().all(|seat| matches!(seat, Seat::Left))
        });
        if state.death.is_none() {
            let mail = state.mail_all(|| Reply::Closed, None);
            state.closed = true;
            self.shared.send(state, mail);
        }
    }

    fn wait(&self, bound: Duration, busy: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), bound, |state| busy(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let mut state = self.wait(TELL, State::is_telling);
        state.closed = true;
        for seat in &state.seats {
            if let Seat::Taken(link) = seat {
                link.close();
            }
        }
        drop(state);
        self.shared.door.close();
        self.shared.stop_listening();
        self.shared.changed.notify_all();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(body)
}

impl State {
    /// Whether PEs can still join.
    fn is_open(&self) -> bool {
        !self.closed && self.seats.iter().any(|seat| matches!(seat, Seat::Empty))
    }

    fn is_telling(&self) -> bool {
        self.death.is_some() && !self.told
    }

    /// Makes a frame for all PEs, with PE 0 last, since PE 0 may end at once and with it the hub.
    fn mail_all(&self, reply: impl Fn() -> Reply, except: Option<u32>) -> Mail {
        let taken = (0..).zip(&self.seats).filter_map(|(pe, seat)| match seat {
            Seat::Taken(link) if Some(pe) != except => Some((link.clone(), reply())),
            _ => None,
        });
        let mut mail: Mail = taken.collect();
        mail.reverse();
        mail
    }

    fn mail(&self, pe: u32, reply: Reply) -> Option<(Arc<Link>, Reply)> {
        match self.seats.get(pe as usize) {
            Some(Seat::Taken(link)) => Some((link.clone(), reply)),
            _ => None,
        }
    }

    /// Ends the rounds of this group that are complete, late, or wait for a PE that has left. The
    /// report about late PEs includes rejected connections.
    fn settle(&mut self, members: &[u32], timeout: Duration, door: &Door) -> Mail {
        let mut mail = Mail::new();
        let Some(mut rounds) = self.groups.remove(members) else { return mail };
        for round in &mut rounds {
            if round.failed.is_some() {
                continue;
            }
            let missing: Vec<u32> = members.iter().copied().filter(|m| !round.came.contains_key(m)).collect();
            let left: Vec<u32> = missing.iter().copied().filter(|&m| self.has_left(m)).collect();
            if missing.is_empty() {
                mail.extend(self.complete(round));
            } else if !left.is_empty() {
                let message = format!("{} already left the job; {}", pes(&left), calls(&round.came));
                mail.extend(self.give_up(round, message));
            } else if !round.is_patient() && round.since.elapsed() >= timeout {
                let message = self.missing(&missing, members, round, timeout) + &door.refusals();
                mail.extend(self.give_up(round, message));
            }
        }
        while rounds.front().is_some_and(|round| round.came.len() == members.len()) {
            rounds.pop_front();
        }
        if !rounds.is_empty() {
            self.groups.insert(members.to_vec(), rounds);
        }
        mail
    }

    fn has_left(&self, pe: u32) -> bool {
        matches!(self.seats.get(pe as usize), Some(Seat::Left))
    }

    /// Sends the payloads of all members to all, if they made the same call.
    fn complete(&self, round: &mut Round) -> Mail {
        let mut whats = round.came.values().map(|call| &call.what);
        let first = whats.next();
        if whats.any(|what| Some(what) != first) {
            return self.give_up(round, format!("the PEs made different calls: {}", calls(&round.came)));
        }
        let bytes: usize = round.came.values().map(|call| call.payload.len() + 16).sum();
        if bytes > wire::MAX_FRAME {
            let message = format!("an exchange has {bytes} bytes, but the limit is {}", wire::MAX_FRAME);
            return self.give_up(round, format!("{message}; {}", calls(&round.came)));
        }
        let ids: Vec<(u32, u64)> = round.came.iter().map(|(&pe, call)| (pe, call.id)).collect();
        let payloads: Vec<Vec<u8>> =
            round.came.values_mut().map(|call| std::mem::take(&mut call.payload)).collect();
        let payloads = Arc::new(payloads);
        // PE 0 is last, as in `mail_all`.
        ids.iter()
            .rev()
            .filter_map(|&(pe, id)| self.mail(pe, Reply::Done { id, payloads: payloads.clone() }))
            .collect()
    }

    fn give_up(&self, round: &mut Round, message: String) -> Mail {
        // PE 0 is last, as in `mail_all`, since it may end after its answer, and with it the hub.
        let told = round.came.iter().rev();
        let mail = told
            .filter_map(|(&pe, call)| self.mail(pe, Reply::Failed { id: call.id, message: message.clone() }))
            .collect();
        round.failed = Some(message);
        round.came.values_mut().for_each(|call| call.payload = Vec::new());
        mail
    }

    /// The number of a PE's calls that wait for others, and their size in bytes.
    fn held(&self, rank: u32) -> (usize, usize) {
        let calls = self.groups.values().flatten().filter_map(|round| round.came.get(&rank));
        calls.fold((0, 0), |(calls, bytes), call| (calls + 1, bytes + size(call)))
    }

    /// Describes which PEs did not arrive, which calls the others made, and where the missing PEs
    /// are.
    fn missing(&self, missing: &[u32], members: &[u32], round: &Round, timeout: Duration) -> String {
        let mut message = format!(
            "{} did not arrive within {} s; {}",
            pes(missing),
            timeout.as_secs_f32(),
            calls(&round.came)
        );
        for (group, rounds) in self.groups.iter().filter(|(group, _)| group.as_slice() != members) {
            for round in rounds.iter().filter(|round| round.failed.is_none()) {
                let elsewhere: BTreeMap<u32, &Call> = round
                    .came
                    .iter()
                    .filter(|(pe, _)| missing.contains(pe))
                    .map(|(&pe, call)| (pe, call))
                    .collect();
                if !elsewhere.is_empty() {
                    message = format!("{message}; among {}, {}", pes(group), calls(&elsewhere));
                }
            }
        }
        message
    }
}

/// The size of a waiting call in bytes.
fn size(call: &Call) -> usize {
    call.payload.len() + call.what.len() + 4 * call.members.len()
}

/// Formats "PEs 0, 2: alloc 4096 B; PE 1: free #3", with equal calls together, in the order of
/// their first PE.
fn calls<C: std::borrow::Borrow<Call>>(came: &BTreeMap<u32, C>) -> String {
    let mut by_what: Vec<(&str, Vec<u32>)> = Vec::new();
    for (&pe, call) in came {
        let what = call.borrow().what.as_str();
        match by_what.iter_mut().find(|(other, _)| *other == what) {
            Some((_, same)) => same.push(pe),
            None => by_what.push((what, vec![pe])),
        }
    }
    let parts: Vec<String> = by_what.iter().map(|(what, same)| format!("{}: {what}", pes(same))).collect();
    parts.join("; ")
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends the frames of a change of the state.
    fn send(&self, state: MutexGuard<'_, State>, mail: Mail) {
        let _in_order = lock(&self.sending);
        drop(state);
        for (link, reply) in mail {
            if link.send(&reply).is_err() {
                // The reader notices this, and it counts as a death.
                link.close();
            }
        }
    }

    /// Whether PEs can still join.
    pub fn is_open(&self) -> bool {
        self.lock().is_open()
    }

    /// Serves PE 0 itself, which needs no proof.
    fn serve_this_process(self: Arc<Shared>, place: &ProcessRank, socket: Socket) -> io::Result<()> {
        let link = Arc::new(Link::new(socket, self.timeout)?);
        let claim = Claim { rank: place.rank, size: place.size, proof: Default::default() };
        self.seat(&claim, Reply::Welcome(Default::default()), &link).map_err(io::Error::other)?;
        spawn("weft-hub-pe", move || self.serve(claim.rank, &mut link.reader())).map(drop)
    }

    /// Handles the requests of a PE until its connection ends.
    pub fn serve(&self, rank: u32, reader: &mut io::BufReader<Reader>) {
        loop {
            match wire::read(reader, wire::MAX_FRAME) {
                Ok(Some(Request::Call(call))) if self.fits(rank, &call) => self.call(rank, call),
                Ok(Some(Request::Call(_))) => {
                    break self.convict(rank, "it sent an invalid call".into());
                }
                Ok(Some(Request::Fail(mut message))) => {
                    message.truncate(message.floor_char_boundary(TEXT));
                    self.die(rank, message);
                }
                Ok(Some(Request::Ask)) => {
                    let state = self.lock();
                    let mail = state.mail_all(|| Reply::Asked { by: rank }, None);
                    self.send(state, mail);
                }
                Ok(Some(Request::Tell { to, doing })) => {
                    let state = self.lock();
                    let mail = state.mail(to, Reply::Told { pe: rank, doing }).into_iter().collect();
                    self.send(state, mail);
                }
                Ok(Some(Request::Goodbye)) => break self.leave(rank),
                Ok(None) => break self.die(rank, "its process ended before the job did".into()),
                Err(e) => break self.die(rank, format!("its connection was lost: {e}")),
            }
        }
    }

    /// Admits a PE that has proved that it belongs to the job, or tells it the reason for a
    /// rejection.
    pub fn seat(&self, claim: &Claim, welcome: Reply, link: &Arc<Link>) -> Result<u32, String> {
        let rank = claim.rank;
        if claim.size != self.size || rank >= self.size {
            return Err(format!(
                "PE 0's job has {} PEs, but this PE is number {rank} of {}",
                self.size, claim.size
            ));
        }
        let mut state = self.lock();
        let Some(seat @ Seat::Empty) = state.seats.get_mut(rank as usize) else {
            return Err(format!("another process is already PE {rank}"));
        };
        *seat = Seat::Taken(link.clone());
        if !state.is_open() {
            self.stop_listening();
        }
        let late = state.death.clone().map(|(pe, reason)| Reply::Died { pe, reason });
        let mail = [welcome].into_iter().chain(late).map(|reply| (link.clone(), reply)).collect();
        self.send(state, mail);
        Ok(rank)
    }

    fn stop_listening(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            let _ = listener.shutdown(std::net::Shutdown::Both);
        }
    }

    fn fits(&self, rank: u32, call: &Call) -> bool {
        let members = &call.members;
        call.what.len() <= TEXT
            && members.binary_search(&rank).is_ok()
            && members.windows(2).all(|pair| pair[0] < pair[1])
            && members.last().is_some_and(|&last| last < self.size)
    }

    fn call(&self, rank: u32, call: Call) {
        let mut state = self.lock();
        if state.death.is_some() || state.closed {
            return;
        }
        let (calls, bytes) = state.held(rank);
        if calls >= HELD_CALLS || bytes + size(&call) > HELD_BYTES {
            drop(state);
            let what = format!("{calls} calls of {bytes} bytes");
            return self
                .convict(rank, format!("it made more calls than PE 0 can hold: {what} wait for other PEs"));
        }
        let members = call.members.clone();
        let rounds = state.groups.entry(members.clone()).or_default();
        let at = rounds.partition_point(|round| round.came.contains_key(&rank));
        if at == rounds.len() {
            rounds.push_back(Round { since: Instant::now(), came: BTreeMap::new(), failed: None });
        }
        let round = &mut rounds[at];
        let late = round.failed.clone().map(|message| Reply::Failed { id: call.id, message });
        // A round that has failed sends no data.
        let payload = if late.is_some() { Vec::new() } else { call.payload };
        round.came.insert(rank, Call { payload, ..call });
        let mut mail = state.settle(&members, self.timeout, &self.door);
        mail.extend(late.and_then(|reply| state.mail(rank, reply)));
        self.changed.notify_all();
        self.send(state, mail);
    }

    /// Handles the orderly end of one PE.
    fn leave(&self, rank: u32) {
        let mut state = self.lock();
        if let Some(seat) = state.seats.get_mut(rank as usize) {
            *seat = Seat::Left;
        }
        let groups: Vec<Vec<u32>> = state.groups.keys().cloned().collect();
        let mail: Mail =
            groups.iter().flat_map(|members| state.settle(members, self.timeout, &self.door)).collect();
        self.changed.notify_all();
        self.send(state, mail);
    }

    /// Handles the first death, which ends the job. The others are told of it.
    fn die(&self, pe: u32, reason: String) {
        self.end(pe, reason, Some(pe));
    }

    /// Treats a PE that breaks the protocol as dead, and tells it.
    fn convict(&self, pe: u32, reason: String) {
        self.end(pe, reason, None);
    }

    fn end(&self, pe: u32, reason: String, except: Option<u32>) {
        let mut state = self.lock();
        if state.death.is_some() || state.closed || state.has_left(pe) {
            return;
        }
        state.death = Some((pe, reason.clone()));
        if let Some(parent) = &self.parent {
            drop(state);
            parent.tell(pe);
            state = self.lock();
        }
        let mail = state.mail_all(|| Reply::Died { pe, reason: reason.clone() }, except);
        self.send(state, mail);
        self.lock().told = true;
        self.changed.notify_all();
    }

    /// Fails the rounds whose time is over.
    fn clock(&self) {
        let mut state = self.lock();
        while !state.closed && state.death.is_none() {
            let groups: Vec<Vec<u32>> = state.groups.keys().cloned().collect();
            let mail: Mail =
                groups.iter().flat_map(|members| state.settle(members, self.timeout, &self.door)).collect();
            if !mail.is_empty() {
                self.send(state, mail);
                state = self.lock();
                continue;
            }
            let waiting = state.groups.values().flatten();
            let waiting = waiting.filter(|round| round.failed.is_none() && !round.is_patient());
            let next = waiting.map(|round| round.since).min();
            state = match next {
                Some(since) => {
                    let left = self.timeout.saturating_sub(since.elapsed()).max(Duration::from_millis(1));
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
