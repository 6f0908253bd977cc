//! The hub's admission of connections: which processes may join, how many connections may wait, and
//! for how long.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::control::lock;
use super::hub::{Shared, spawn};
use super::secret::{Key, Side, once};
use super::socket::{Link, Reader};
use super::wire::{self, Claim, Hello, MAGIC, MAX_HELLO, Reply};
use super::{Admission, ProcessRank};

/// The time that a connection has to prove that it is from a PE.
const GREETING: Duration = Duration::from_secs(5);
/// The time that a connection may wait for admission when others need its place.
const SHORT: Duration = Duration::from_millis(250);
/// The answer to a process that has not proved that it belongs to the job.
pub(super) const STRANGER: &str = "it has not shown that it belongs to the job: all PEs need one launcher, one build of \
                                   the program, and the same secret";

/// The connections that ask for admission.
pub(super) struct Door {
    key: Key,
    admission: Admission,
    size: u32,
    /// The connections without a seat, with the oldest first.
    before: Mutex<VecDeque<(Instant, Arc<Link>)>>,
    refused: Mutex<Refused>,
}

/// The connections that were rejected.
#[derive(Clone, Copy, Default)]
struct Refused {
    count: u32,
    /// The reason for the last rejection.
    why: &'static str,
}

impl Door {
    pub fn new(place: &ProcessRank) -> Door {
        Door {
            key: Key::of(place),
            admission: place.admission.clone(),
            size: place.size,
            before: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// The largest number of connections that wait for admission.
    fn room(&self) -> usize {
        2 * self.size as usize + 16
    }

    /// Returns "; 3 connections were rejected, ...", as an addition to the report of missing PEs.
    pub fn refusals(&self) -> String {
        match *lock(&self.refused) {
            Refused { count: 0, .. } => String::new(),
            Refused { count: 1, why } => format!("; one connection was rejected because it {why}"),
            Refused { count, why } => {
                format!("; {count} connections were rejected, the last one because it {why}")
            }
        }
    }

    fn refuse(&self, why: &'static str) {
        let mut refused = lock(&self.refused);
        *refused = Refused { count: refused.count.saturating_add(1), why };
    }

    /// Makes room for a connection by closing the oldest, if it has had enough time.
    fn enter(&self, link: &Arc<Link>) -> bool {
        let mut before = lock(&self.before);
        if before.len() >= self.room() {
            match before.front() {
                Some((since, oldest)) if since.elapsed() >= SHORT => oldest.close(),
                _ => return false,
            }
            before.pop_front();
        }
        before.push_back((Instant::now(), link.clone()));
        true
    }

    fn leave(&self, link: &Arc<Link>) {
        lock(&self.before).retain(|(_, other)| !Arc::ptr_eq(other, link));
    }

    /// Closes the connections that wait for admission.
    pub fn close(&self) {
        lock(&self.before).drain(..).for_each(|(_, link)| link.close());
    }

    /// Identifies the PE and makes the hub's proof; none for a foreign process.
    fn greet(&self, link: &Link, reader: &mut io::BufReader<Reader>) -> Option<(Claim, Reply)> {
        let Ok(Some(hello)) = wire::read::<Hello>(reader, MAX_HELLO) else {
            self.refuse("did not identify itself in time, or was not from a PE");
            return None;
        };
        if hello.magic != MAGIC {
            self.refuse("used another version of warpweft");
            return None;
        }
        let numbers = [hello.once, once().ok()?];
        link.send(&Reply::Challenge(numbers[1])).ok()?;
        let claim = wire::read::<Claim>(reader, MAX_HELLO).ok()??;
        if !self.key.proves(&claim.proof, Side::Pe { rank: claim.rank, size: claim.size }, &numbers) {
            self.refuse("belonged to another job, or used another secret");
            return None;
        }
        let welcome = Reply::Welcome(self.key.proof(Side::Hub, &numbers));
        Some((claim, welcome))
    }

    /// Whether a process with the key can safely be told why it is rejected.
    fn may_tell(&self) -> bool {
        self.admission != Admission::Anybody
    }
}

/// Admits connections until the listener is closed.
pub(super) fn attend(shared: &Arc<Shared>, listener: &Socket) {
    loop {
        match listener.accept() {
            Ok((socket, _)) => admit(shared, socket),
            Err(_) if shared.is_open() => thread::sleep(Duration::from_millis(10)),
            Err(_) => return,
        }
    }
}

/// Handles a connection of another process in its own thread, if it may wait for admission.
fn admit(shared: &Arc<Shared>, socket: Socket) {
    let door = &shared.door;
    let Ok(link) = Link::new(socket, shared.timeout).map(Arc::new) else { return };
    if !link.is_allowed(&door.admission) {
        door.refuse("belonged to another user");
        return link.close();
    }
    if !door.enter(&link) {
        door.refuse("arrived while too many connections had not identified themselves");
        return link.close();
    }
    let (inside, waiting) = (shared.clone(), link.clone());
    let thread = spawn("weft-hub-pe", move || {
        let mut reader = waiting.reader();
        reader.get_mut().until(Some(Instant::now() + GREETING));
        let greeted = inside.door.greet(&waiting, &mut reader);
        reader.get_mut().until(None);
        let seated = match greeted {
            Some((claim, welcome)) => {
                let seated = inside.seat(&claim, welcome, &waiting);
                seated.map_err(|why| if inside.door.may_tell() { why } else { STRANGER.into() })
            }
            None => Err(STRANGER.into()),
        };
        inside.door.leave(&waiting);
        match seated {
            Ok(rank) => inside.serve(rank, &mut reader),
            Err(why) => {
                let _ = waiting.send(&Reply::Refused(why));
                waiting.close();
            }
        }
    });
    if thread.is_err() {
        door.leave(&link);
        link.close();
    }
}
