//! The hub's door: who may come in, how many may stand before it, and for how long.

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

/// How long a connection may take to show that it is a PE's.
const GREETING: Duration = Duration::from_secs(5);
/// How long a connection may stay before the door when others want its place.
const SHORT: Duration = Duration::from_millis(250);
/// What is said to everybody who has not shown that he belongs to the job.
pub(super) const STRANGER: &str = "it has not shown that it belongs to the job: all PEs need one launcher, one build of \
                                   the program, and the same secret";

/// Who has come to the door.
pub(super) struct Door {
    key: Key,
    admission: Admission,
    size: u32,
    /// Connections that have no seat yet, the oldest first.
    before: Mutex<VecDeque<(Instant, Arc<Link>)>>,
    refused: Mutex<Refused>,
}

/// Connections that were not let in.
#[derive(Clone, Copy, Default)]
struct Refused {
    count: u32,
    /// Why the last one was not.
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

    /// Most connections before the door.
    fn room(&self) -> usize {
        2 * self.size as usize + 16
    }

    /// "; 3 connections were refused, the last one because ...": for PEs that did not come.
    pub fn refusals(&self) -> String {
        match *lock(&self.refused) {
            Refused { count: 0, .. } => String::new(),
            Refused { count: 1, why } => format!("; a connection was refused, because it {why}"),
            Refused { count, why } => {
                format!("; {count} connections were refused, the last one because it {why}")
            }
        }
    }

    fn refuse(&self, why: &'static str) {
        let mut refused = lock(&self.refused);
        *refused = Refused { count: refused.count.saturating_add(1), why };
    }

    /// Makes room for a connection: the oldest goes, if it has had its time.
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

    /// Closes what stands before the door.
    pub fn close(&self) {
        lock(&self.before).drain(..).for_each(|(_, link)| link.close());
    }

    /// Which PE it is, and the hub's proof; none of a stranger.
    fn greet(&self, link: &Link, reader: &mut io::BufReader<Reader>) -> Option<(Claim, Reply)> {
        let Ok(Some(hello)) = wire::read::<Hello>(reader, MAX_HELLO) else {
            self.refuse("did not say in time who it is, or was no PE's");
            return None;
        };
        if hello.magic != MAGIC {
            self.refuse("is of another version of warpweft");
            return None;
        }
        let numbers = [hello.once, once().ok()?];
        link.send(&Reply::Challenge(numbers[1])).ok()?;
        let claim = wire::read::<Claim>(reader, MAX_HELLO).ok()??;
        if !self.key.proves(&claim.proof, Side::Pe { rank: claim.rank, size: claim.size }, &numbers) {
            self.refuse("is of another job, or has another secret");
            return None;
        }
        let welcome = Reply::Welcome(self.key.proof(Side::Hub, &numbers));
        Some((claim, welcome))
    }

    /// Whether it is safe to tell who has the key why it is not let in.
    fn may_tell(&self) -> bool {
        self.admission != Admission::Anybody
    }
}

/// Lets connections in until the listener is closed.
pub(super) fn attend(shared: &Arc<Shared>, listener: &Socket) {
    loop {
        match listener.accept() {
            Ok((socket, _)) => admit(shared, socket),
            Err(_) if shared.is_open() => thread::sleep(Duration::from_millis(10)),
            Err(_) => return,
        }
    }
}

/// A connection of another process: a thread of its own if it may stand before the door.
fn admit(shared: &Arc<Shared>, socket: Socket) {
    let door = &shared.door;
    let Ok(link) = Link::new(socket, shared.timeout).map(Arc::new) else { return };
    if !link.is_allowed(&door.admission) {
        door.refuse("belongs to another user");
        return link.close();
    }
    if !door.enter(&link) {
        door.refuse("came when too many others had not said who they are");
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
