//! The connection of a PE with all others.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::doing;
use super::env::{self, ProcessRank};
use super::hub::Hub;
use super::secret::{Key, Side, once};
use super::socket::{self, Link, Reader};
use super::spawn::Parent;
use super::wire::{self, Call, Claim, Doing, Hello, MAGIC, Reply, Request};
use super::{ENDED_WITH_PEER, Options, pes};
use socket2::Socket;

use crate::error::{BOOTSTRAP, COLLECTIVE, Error, FINALIZED, NOT_IN_TEAM, PEER_DIED, Result};
use crate::interrupt::{self, PAUSE};
use crate::visible;

/// The connection of a PE with all others, through the hub in PE 0.
///
/// To the others, dropping it without [`goodbye`](Control::goodbye) is a death, like the end of the
/// process.
pub struct Control {
    rank: u32,
    size: u32,
    options: Options,
    pub(super) shared: Arc<Shared>,
    /// The hub, which only PE 0 has.
    hub: Option<Hub>,
}

pub(super) struct Shared {
    rank: u32,
    pub link: Link,
    pub state: Mutex<State>,
    pub changed: Condvar,
    grace: Option<Duration>,
    /// The supervisor, which tells the user what happened.
    parent: Option<Parent>,
    watched: AtomicBool,
    /// This lock is held by the thread that asks all PEs for their state.
    pub asking: Mutex<()>,
}

/// The behaviour of an exchange whose members take longer than the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    /// The exchange fails.
    Fails,
    /// The waiting PEs print the state of all PEs each time, and go on waiting.
    Reports,
    /// The exchange goes on without a word.
    Waits,
}

/// The payloads of all members, or the reason for a failure.
type Answer = std::result::Result<Arc<Vec<Vec<u8>>>, String>;

#[derive(Default)]
pub(super) struct State {
    next: u64,
    /// The names of this PE's calls without an answer.
    open: BTreeMap<u64, String>,
    /// The answers of all PEs to this one's question about their state.
    pub doing: Vec<Option<Doing>>,
    /// The answers by call; none until the answer arrives.
    calls: BTreeMap<u64, Option<Answer>>,
    pub died: Option<(u32, String)>,
    /// Whether the job has ended, by a goodbye or by the hub's orderly end.
    pub ended: bool,
}

impl State {
    /// The last call of this PE that has no answer yet.
    pub(super) fn open_call(&self) -> Option<String> {
        self.open.values().next_back().cloned()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks. If it did, the state would still be
    // consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Connects, and waits until every PE has, with [`Options::from_env`].
    ///
    /// # Errors
    /// Fails if `WEFT_TIMEOUT` is not a time (R0201), or where [`connect_with`](Control::connect_with) fails.
    pub fn connect(place: &ProcessRank) -> Result<Arc<Control>> {
        Control::connect_with(place, Options::from_env()?)
    }

    /// Connects, and waits until every PE has connected.
    ///
    /// # Errors
    /// Fails if PE 0 listens beyond this host and no secret limits who may connect (R0201), if PEs
    /// or the address cannot be reached in time (R0202), or if a PE died meanwhile (R0203).
    pub fn connect_with(place: &ProcessRank, options: Options) -> Result<Arc<Control>> {
        let deadline = Instant::now() + options.timeout;
        let failed = |what: &str, e: io::Error| {
            let message = format!("PE {}: {what} {}: {e}", place.rank, place.hub);
            Error::new(BOOTSTRAP, message).help(match e.kind() {
                io::ErrorKind::AddrInUse => match place.hub {
                    env::Hub::Local(_) => {
                        "set WEFT_ADDR to another @name for all PEs: another process, perhaps of another user, uses this name"
                    }
                    env::Hub::Tcp(..) => {
                        "set WEFT_PORT (or WEFT_ADDR) to a free port for all PEs: another program listens at this address"
                    }
                },
                _ => "check that PE 0, which listens at this address, is running and that its host is reachable; WEFT_ADDR sets another address",
            })
        };
        place.check_admission()?;
        let parent = Parent::of(place);
        let (hub, socket) = match place.rank {
            0 => {
                let listener = (place.size > 1).then(|| socket::listen(&place.hub)).transpose();
                let listener = listener.map_err(|e| failed("cannot listen at", e))?;
                let (hub, socket) = Hub::start(place, listener, options.timeout, parent.clone())
                    .map_err(|e| failed("cannot serve the other PEs at", e))?;
                (Some(hub), socket)
            }
            _ => (
                None,
                socket::connect(&place.hub, deadline).map_err(|e| failed("cannot connect to PE 0 at", e))?,
            ),
        };
        let (link, reader) = enter(place, socket, options.timeout, deadline).map_err(|e| match e {
            Greeting::Refused(why) => Error::new(
                BOOTSTRAP,
                format!("PE {}: PE 0 at {} rejected it: {why}", place.rank, place.hub),
            )
            .help("start all PEs with one launcher, from one build of the program, with one WEFT_SECRET"),
            Greeting::Failed(e) => failed("no answer from PE 0 at", e),
        })?;

        let shared = Arc::new(Shared {
            rank: place.rank,
            link,
            state: Mutex::default(),
            changed: Condvar::new(),
            grace: options.grace,
            parent,
            watched: AtomicBool::new(false),
            asking: Mutex::default(),
        });
        let control = Control { rank: place.rank, size: place.size, options, shared: shared.clone(), hub };
        thread::Builder::new()
            .name("weft-control".into())
            .spawn(move || listen(&shared, reader))
            .map_err(|e| failed("cannot start the thread for", e))?;

        let all: Vec<u32> = (0..place.size).collect();
        control.call(&all, "start", &[], Late::Fails).map_err(|e| match e.code {
            COLLECTIVE => Error::new(BOOTSTRAP, e.message).help(format!(
                "WEFT_TIMEOUT sets how many seconds to wait (now {})",
                options.timeout.as_secs_f32()
            )),
            _ => e,
        })?;
        let control = Arc::new(control);
        doing::entered(Arc::downgrade(&control));
        Ok(control)
    }

    /// The rank of this PE.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of PEs.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Gathers every member's payload, in member order, on all members. `members` are PEs in
    /// ascending order, including this one. The members of a group must make their exchanges in the
    /// same order, with the same name `what`. Exchanges of different groups may overlap, from
    /// several threads.
    ///
    /// # Errors
    /// Fails at every member if the members' calls differ, or if a member did not arrive in time or
    /// has left (R0301), or if a PE of the job died (R0203). Fails at this member if the members
    /// are not as above (R0303), or after the end (R0305). With [`Options::reports`] no member is
    /// too late.
    pub fn exchange(&self, members: &[u32], what: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        let late = if self.options.reports { Late::Reports } else { Late::Fails };
        self.call(members, what, payload, late)
    }

    /// Exchanges bytes like [`exchange`](Control::exchange), and waits until the others arrive or
    /// one dies.
    ///
    /// # Errors
    /// Fails where [`exchange`](Control::exchange) fails, except that members can take any time to
    /// arrive.
    pub fn exchange_patiently(&self, members: &[u32], what: &str, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.call(members, what, payload, Late::Waits)
    }

    /// Returns the limit on waits.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    fn call(&self, members: &[u32], what: &str, payload: &[u8], late: Late) -> Result<Vec<Vec<u8>>> {
        let sound = members.windows(2).all(|pair| pair[0] < pair[1])
            && members.last().is_some_and(|&m| m < self.size);
        if !sound || members.binary_search(&self.rank).is_err() {
            let message = format!("PE {} of {} called `{what}` among {}", self.rank, self.size, pes(members));
            return Err(Error::new(NOT_IN_TEAM, message)
                .help("list the PEs of the team in ascending order, and include this PE"));
        }
        let mut state = lock(&self.shared.state);
        self.shared.check(&state)?;
        let id = state.next;
        state.next += 1;
        state.calls.insert(id, None);
        state.open.insert(id, what.to_owned());
        drop(state);
        let members_count = members.len();
        let (members, payload) = (members.to_vec(), payload.to_vec());
        let call = Call { id, members, what: what.to_string(), payload, patient: late != Late::Fails };
        if let Err(e) = self.shared.link.send(&Request::Call(call)) {
            if e.kind() == io::ErrorKind::InvalidData {
                let mut state = lock(&self.shared.state);
                state.calls.remove(&id);
                state.open.remove(&id);
                return Err(Error::new(COLLECTIVE, format!("PE {}: `{what}`: {e}", self.rank)));
            }
            // The reader learns the reason, which is reported below.
            self.shared.link.close();
        }

        // The hub answers within the timeout. If it does not, its host is gone or PE 0 is stopped.
        let patience = match late {
            Late::Fails => self.options.timeout + Duration::from_secs(10),
            Late::Reports => self.options.timeout,
            Late::Waits => Duration::MAX,
        };
        let open = |state: &mut State| {
            matches!(state.calls.get(&id), Some(None)) && state.died.is_none() && !state.ended
        };
        let mut state = loop {
            let state = lock(&self.shared.state);
            let mut state = self.until(state, patience, what, open).inspect_err(|_| {
                let mut state = lock(&self.shared.state);
                state.calls.remove(&id);
                state.open.remove(&id);
            })?;
            if late != Late::Reports || !open(&mut state) {
                break state;
            }
            drop(state);
            self.report(what);
        };
        let answer = state.calls.remove(&id).flatten();
        if let Some(Err(message)) = answer {
            drop(state);
            let message = message + &self.kernel_waits();
            lock(&self.shared.state).open.remove(&id);
            return Err(Error::new(COLLECTIVE, message)
                .help("make the same collective calls in the same order on every PE of the team"));
        }
        state.open.remove(&id);
        match answer.and_then(std::result::Result::ok) {
            Some(payloads) if payloads.len() != members_count => {
                let message = format!(
                    "PE {}: `{what}`: PE 0 sent the data of {} PEs, but there are {members_count} members",
                    self.rank,
                    payloads.len()
                );
                Err(Error::new(COLLECTIVE, message).help("run one build of the program on all PEs"))
            }
            Some(payloads) => Ok(Arc::unwrap_or_clone(payloads)),
            None => {
                self.shared.check(&state)?;
                let message = format!(
                    "PE {}: `{what}`: PE 0 did not answer within {} s",
                    self.rank,
                    patience.as_secs_f32()
                );
                Err(Error::new(COLLECTIVE, message)
                    .help("check whether the process of PE 0 is stopped, and whether its host is reachable"))
            }
        }
    }

    /// Prints that an exchange has waited for another timeout, and what all PEs do.
    fn report(&self, what: &str) {
        let limit = self.options.timeout.as_secs_f32();
        let all = doing::words(&self.ask());
        eprintln!("weft: PE {}: `{what}` is not complete after {limit} s:\n{all}", self.rank);
    }

    /// Waits while `open` returns true, at most for this time.
    fn until<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        patience: Duration,
        what: &str,
        open: impl Fn(&mut State) -> bool,
    ) -> Result<MutexGuard<'s, State>> {
        let began = Instant::now();
        loop {
            let left = patience.saturating_sub(began.elapsed()).min(PAUSE);
            let waited = self.shared.changed.wait_timeout_while(state, left, |state| open(state));
            let (now, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if !timed_out.timed_out() || began.elapsed() >= patience {
                return Ok(now);
            }
            // The callback may take some time, and other threads need the state.
            drop(now);
            interrupt::go_on(&format!("the other PEs in `{what}`"))?;
            state = lock(&self.shared.state);
        }
    }

    /// Reports to all PEs that this one failed with this message. Their exchanges, pending and
    /// later ones, get R0203. This process should end; after the grace period it is ended, unless
    /// it is the only PE.
    pub fn fail(&self, message: &str) {
        let mut state = lock(&self.shared.state);
        if state.ended || state.died.is_some() {
            return;
        }
        state.died = Some((self.rank, message.into()));
        drop(state);
        self.shared.changed.notify_all();
        match &self.hub {
            Some(hub) => hub.fail(message),
            None => _ = self.shared.link.send(&Request::Fail(message.into())),
        }
        // If a PE is alone, no other process waits for its end, so its program can continue without
        // a world.
        if self.size > 1 {
            self.shared.watch();
        }
    }

    /// Ends in order. Without this call, the closing of the connection counts as a death. PE 0
    /// waits for the others' goodbyes.
    pub fn goodbye(&self) {
        let mut state = lock(&self.shared.state);
        if state.ended {
            return;
        }
        state.ended = true;
        drop(state);
        self.shared.changed.notify_all();
        let _ = self.shared.link.send(&Request::Goodbye);
        if let Some(hub) = &self.hub {
            hub.goodbye();
        }
    }

    /// Tells the process that started this PE, if there is one, about the shared memory that a
    /// killed PE would leave behind.
    pub(crate) fn tell_of_segments(&self) {
        if let Some(parent) = &self.shared.parent {
            parent.tell_of_segments();
        }
    }

    /// Whether this PE has left the job, or the job has failed.
    pub(super) fn is_over(&self) -> bool {
        let state = lock(&self.shared.state);
        state.ended || state.died.is_some()
    }

    /// The first known death, as the PE and the reason.
    pub fn died(&self) -> Option<(u32, String)> {
        lock(&self.shared.state).died.clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // After this, the end of the connection is not a death of PE 0.
        lock(&self.shared.state).ended = true;
        self.shared.link.close();
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

enum Greeting {
    Refused(String),
    Failed(io::Error),
}

/// Enters the job through this connection, or through a later one if it is closed without an
/// answer. PE 0 closes some connections when many arrive at once.
fn enter(
    place: &ProcessRank,
    socket: Socket,
    timeout: Duration,
    deadline: Instant,
) -> std::result::Result<(Link, io::BufReader<Reader>), Greeting> {
    let mut socket = Some(socket);
    loop {
        let connected = socket.take().map_or_else(|| socket::connect(&place.hub, deadline), Ok);
        let link = connected.and_then(|socket| Link::new(socket, timeout)).map_err(Greeting::Failed)?;
        match greet(place, &link, deadline) {
            Ok(reader) => return Ok((link, reader)),
            Err(Greeting::Failed(e))
                if closed(&e) && place.rank != 0 && Instant::now() + RETRY < deadline =>
            {
                thread::sleep(RETRY);
            }
            Err(e) => return Err(e),
        }
    }
}

/// The pause between attempts to enter.
const RETRY: Duration = Duration::from_millis(50);

fn closed(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Proves that this PE belongs to the job, and requires the same proof from PE 0.
fn greet(
    place: &ProcessRank,
    link: &Link,
    deadline: Instant,
) -> std::result::Result<io::BufReader<Reader>, Greeting> {
    let failed = |kind, why: &str| Greeting::Failed(io::Error::new(kind, why));
    let mut reader = link.reader();
    if place.rank == 0 {
        // This PE's own hub is in this process.
        return match wire::read::<Reply>(&mut reader, wire::MAX_FRAME).map_err(Greeting::Failed)? {
            Some(Reply::Welcome(_)) => Ok(reader),
            _ => Err(failed(io::ErrorKind::InvalidData, "the process at this address is not PE 0")),
        };
    }
    let earliest = Instant::now() + Duration::from_millis(100);
    reader.get_mut().until(Some(deadline.max(earliest)));
    let mut hear = || match wire::read::<Reply>(&mut reader, wire::MAX_HELLO) {
        Ok(Some(Reply::Refused(why))) => Err(Greeting::Refused(visible(&why).into_owned())),
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => Err(failed(io::ErrorKind::UnexpectedEof, "PE 0 closed the connection")),
        Err(e) => Err(Greeting::Failed(e)),
    };
    let no_hub = || failed(io::ErrorKind::InvalidData, "the process at this address is not PE 0");
    let mine = once().map_err(|e| failed(io::ErrorKind::Other, &e.message))?;
    link.send(&Hello { magic: MAGIC.into(), once: mine }).map_err(Greeting::Failed)?;
    let Reply::Challenge(theirs) = hear()? else { return Err(no_hub()) };
    // The connection is accepted now, so the system knows its owner.
    if !link.is_allowed(&place.admission) {
        return Err(failed(
            io::ErrorKind::PermissionDenied,
            "the process at this address belongs to another user",
        ));
    }
    let (key, numbers) = (Key::of(place), [mine, theirs]);
    let proof = key.proof(Side::Pe { rank: place.rank, size: place.size }, &numbers);
    link.send(&Claim { rank: place.rank, size: place.size, proof }).map_err(Greeting::Failed)?;
    let Reply::Welcome(proof) = hear()? else { return Err(no_hub()) };
    if !key.proves(&proof, Side::Hub, &numbers) {
        let why = "the process at this address has not proved that it is PE 0 of this job";
        return Err(failed(io::ErrorKind::PermissionDenied, why));
    }
    reader.get_mut().until(None);
    Ok(reader)
}

/// Receives the hub's frames until the connection ends.
fn listen(shared: &Arc<Shared>, mut reader: io::BufReader<Reader>) {
    let (pe, reason) = loop {
        match wire::read(&mut reader, wire::MAX_FRAME) {
            Ok(Some(Reply::Done { id, payloads })) => shared.answer(id, Ok(payloads)),
            Ok(Some(Reply::Failed { id, message })) => shared.answer(id, Err(visible(&message).into_owned())),
            Ok(Some(Reply::Died { pe, reason })) => break (pe, visible(&reason).into_owned()),
            Ok(Some(Reply::Asked { by })) => {
                let host = lock(&shared.state).open_call();
                let doing = doing::here(host.as_deref());
                // If the connection is lost, the next read reports it.
                let _ = shared.link.send(&Request::Tell { to: by, doing });
            }
            Ok(Some(Reply::Told { pe, mut doing })) => {
                doing.lines.iter_mut().for_each(|line| *line = visible(line).into_owned());
                if let Some(slot) = lock(&shared.state).doing.get_mut(pe as usize) {
                    *slot = Some(doing);
                }
                shared.changed.notify_all();
            }
            Ok(Some(Reply::Closed)) => {
                lock(&shared.state).ended = true;
                return shared.changed.notify_all();
            }
            Ok(Some(Reply::Challenge(_) | Reply::Welcome(_) | Reply::Refused(_))) => {
                break (0, "it sent an unexpected message".into());
            }
            Ok(None) => break (0, "its process ended before the job did".into()),
            Err(e) => break (0, format!("its connection was lost: {e}")),
        }
    };
    if lock(&shared.state).ended {
        return;
    }
    if let Some(parent) = shared.parent.as_ref().filter(|_| pe == 0) {
        // The hub, which reports others' deaths, may be gone with PE 0.
        parent.tell(pe);
    }
    lock(&shared.state).died.get_or_insert((pe, reason));
    shared.changed.notify_all();
    shared.watch();
}

impl Shared {
    fn check(&self, state: &State) -> Result<()> {
        match &state.died {
            Some((pe, reason)) => {
                let message = format!("PE {pe} ended: {reason}");
                Err(Error::new(PEER_DIED, message).help(match *pe == self.rank {
                    true => "this PE reported a failure earlier".to_string(),
                    false => format!(
                        "see the error of PE {pe}, which is the cause; PE {} ends because of it",
                        self.rank
                    ),
                }))
            }
            None if state.ended => Err(Error::new(
                FINALIZED,
                format!("PE {}: a collective call after the end of the job", self.rank),
            )),
            None => Ok(()),
        }
    }

    fn answer(&self, id: u64, answer: Answer) {
        if let Some(slot) = lock(&self.state).calls.get_mut(&id) {
            *slot = Some(answer);
        }
        self.changed.notify_all();
    }

    /// Ends this process after the grace period, if it does not end by itself.
    fn watch(self: &Arc<Shared>) {
        let Some(grace) = self.grace else { return };
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = self.clone();
        let watcher = thread::Builder::new().name("weft-watch".into()).spawn(move || {
            thread::sleep(grace);
            shared.say_last_words();
            super::sys::exit_now(ENDED_WITH_PEER)
        });
        if watcher.is_err() {
            super::sys::exit_now(ENDED_WITH_PEER);
        }
    }

    /// Prints one line on standard error, unless a parent prints it. A blocked standard error does
    /// not delay the end.
    fn say_last_words(&self) {
        let Some((pe, reason)) = lock(&self.state).died.clone() else { return };
        let rank = self.rank;
        let line = match pe == rank {
            false if self.parent.is_some() => return,
            true => format!("weft: PE {rank} failed, did not exit, and is ended: {reason}\n"),
            false => format!("weft: PE {rank} ends because PE {pe} ended: {reason}\n"),
        };
        let (done, wait) = mpsc::channel::<()>();
        let _ = thread::Builder::new().spawn(move || {
            let _ = io::stderr().write_all(line.as_bytes());
            drop(done);
        });
        let _ = wait.recv_timeout(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests;
