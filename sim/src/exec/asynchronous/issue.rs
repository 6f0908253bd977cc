//! Issues asynchronous operations for instructions.

use super::groups::Piece;
use super::mbarrier::SIZE;
use super::{
    Asynchronous, Completion, Failure, Origin, Pending, Segment, Transfer, Work, World, announce, take,
};
use crate::check::{AccessKind, Agent, Stream};
use crate::codes;
use crate::exec::access::Space;
use crate::exec::{Context, Fault, FaultInfo, access_fault, fault};
use crate::memory::Spot;
use crate::model::lanes;
use crate::order::{Order, Scope};

/// The largest number of pieces that a bulk copy is cut into.
const PIECES: u64 = 3;

impl Context<'_> {
    /// Returns the location of `len` bytes aligned to `align` at a global or shared address.
    pub(crate) fn spot(
        &self,
        space: Space,
        addr: u64,
        (len, align): (usize, usize),
        write: bool,
        lane: usize,
    ) -> Result<Spot, Fault> {
        let (space, addr) = self.locate(space, addr, align, lane)?;
        match space {
            Space::Shared => self.own(addr, len, lane),
            Space::Cluster => self.remote(addr, len, lane),
            Space::Global if len == 0 => Ok(Spot { buffer: 0, at: 0 }),
            Space::Global => {
                self.memory.spot(self.at.pe, addr, len as u64, write).map_err(|e| access_fault(lane, e))
            }
            _ => {
                let message = format!("an asynchronous operation on {} memory", space.name());
                Err(fault(
                    codes::BAD_ADDRESS,
                    lane,
                    message,
                    "asynchronous operations work on global and shared memory",
                ))
            }
        }
    }

    /// Returns the location of an mbarrier.
    pub(crate) fn mbarrier(&self, space: Space, addr: u64, lane: usize) -> Result<Spot, Fault> {
        let (found, at) = self.locate(space, addr, SIZE, lane)?;
        if !found.is_shared() {
            let message = format!("an mbarrier operand is the {} address {addr:#x}", found.name());
            return Err(fault(codes::ASYNCHRONOUS, lane, message, "place mbarriers in shared memory"));
        }
        self.spot(found, at, (SIZE, SIZE), true, lane)
    }

    /// Makes the fault of an error in an mbarrier of this CTA or another.
    #[cold]
    pub(crate) fn wrong(&self, at: Spot, lane: usize, (message, help): super::mbarrier::Wrong) -> Fault {
        let message = format!("mbarrier at shared {:#x}: {message}", at.at);
        let shared = (at.buffer == self.shared).then_some(at.at as u64);
        Box::new(FaultInfo {
            code: codes::ASYNCHRONOUS,
            message,
            help: help.into(),
            lane: Some(lane),
            shared,
        })
    }

    /// Faults unless there is an mbarrier at the location.
    pub(crate) fn require(&mut self, at: Spot, lane: usize) -> Result<(), Fault> {
        let found = self.asynchronous.valid(self.memory, at).map(|_| ());
        found.map_err(|w| self.wrong(at, lane, w))
    }

    fn origin(&self, lane: usize) -> Origin {
        Origin {
            slot: Some(self.slot),
            lane,
            grid: self.at.grid,
            pe: self.at.pe,
            ctaid: self.at.ctaid,
            tid: self.at.tid(self.thread(lane)),
            pc: self.pc,
        }
    }

    /// Issues a bulk operation of a lane.
    pub(crate) fn issue(&mut self, lane: usize, t: Transfer, completion: Completion) -> Result<(), Fault> {
        if let Completion::Mbarrier(at) = completion {
            self.require(at, lane)?;
        }
        self.publish(Scope::Sys);
        let ticket = self.check.as_deref_mut().map(|d| {
            let stream = match completion {
                Completion::Mbarrier(at) => Stream::Mbarrier(at),
                Completion::Group => Stream::Bulk,
            };
            let mut ticket = d.begin_in(self.slot, lane, self.pc, Agent::Async, stream);
            if t.reduction.as_ref().is_some_and(|r| r.of_system) {
                ticket.reduces = Order::RELAXED_SYS;
            }
            let writes = if t.reduction.is_some() { AccessKind::Update } else { AccessKind::Write };
            announce(d, self.memory, &ticket, writes, t.segments.iter());
            ticket
        });
        let group = match completion {
            Completion::Group => self.asynchronous.bulk_group(self.slot, lane),
            Completion::Mbarrier(_) => 0,
        };
        if t.links {
            self.count_links(&t.segments);
        }
        let uses = t.uses(self.memory, completion);
        let origin = self.origin(lane);
        let mut world = World { memory: self.memory, check: self.check.as_deref_mut() };
        for part in self.asynchronous.cut(t) {
            let p = Pending {
                number: self.asynchronous.number(),
                origin: origin.clone(),
                work: Work::Transfer(part, completion),
                group,
                read: false,
                uses,
                ticket: ticket.clone(),
            };
            self.asynchronous.push(&mut world, p).map_err(|f| Box::new(f.fault))?;
        }
        Ok(())
    }

    fn count_links<'s>(&mut self, segments: impl IntoIterator<Item = &'s Segment>) {
        for s in segments {
            self.memory.count_bytes(self.at.pe, s.from, s.to, s.len);
        }
    }

    /// Issues copies of `segments` for each active lane.
    pub(crate) fn issue_copies(&mut self, pieces: &[Option<[Option<Segment>; 2]>; 32]) {
        self.publish(Scope::Sys);
        for segments in pieces.iter().flatten() {
            self.count_links(segments.iter().flatten());
        }
        let (slot, pc) = (self.slot, self.pc);
        if let Some(d) = self.check.as_deref_mut() {
            for lane in lanes(self.active) {
                let ticket = d.begin_in(slot, lane, pc, Agent::Copy, Stream::Copies);
                let segments = pieces[lane].iter().flatten().flatten();
                announce(d, self.memory, &ticket, AccessKind::Write, segments);
            }
        }
        let mut world = World { memory: self.memory, check: self.check.as_deref_mut() };
        let pieces = pieces.iter().enumerate().filter_map(|(lane, p)| Some(Piece { lane, segments: (*p)? }));
        self.asynchronous.copy(&mut world, slot, pieces);
    }

    /// Issues an arrival of each of these lanes that happens when its copies are complete.
    pub(crate) fn issue_arrivals(&mut self, at: &[(usize, Spot)]) -> Result<(), Fault> {
        let Some(&(lane, first)) = at.first() else { return Ok(()) };
        let origin = self.origin(lane);
        let mut ticket = |lane| {
            self.check
                .as_deref_mut()
                .map(|d| d.begin_in(self.slot, lane, self.pc, Agent::Copy, Stream::Copies))
        };
        let at = at.iter().map(|&(lane, at)| (lane, at, ticket(lane))).collect();
        let up_to = self.asynchronous.latest();
        let uses = [usize::MAX, first.buffer];
        let work = Work::Arrive { slot: self.slot, at, up_to };
        let number = self.asynchronous.number();
        let p = Pending { number, origin, work, group: 0, read: false, uses, ticket: None };
        let mut world = World { memory: self.memory, check: self.check.as_deref_mut() };
        self.asynchronous.push(&mut world, p).map_err(|f| Box::new(f.fault))
    }
}

impl Asynchronous {
    /// The number of the operation that is issued next.
    pub(super) fn number(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// Starts an operation, which may complete at once.
    fn push(&mut self, world: &mut World<'_>, mut p: Pending) -> Result<(), Box<Failure>> {
        if self.chance(4)
            && let Work::Transfer(t, _) = &mut p.work
        {
            take(world.memory, t);
        }
        if let (Some(log), Work::Transfer(t, completion)) = (&mut self.log, &p.work) {
            let what = match completion {
                Completion::Mbarrier(_) => "bulk load",
                Completion::Group => "bulk store",
            };
            let ends = t.segments.first().map(|s| [Some(s.to), s.from]).unwrap_or_default();
            let owner = ends.into_iter().flatten().find_map(|s| world.memory.owner(s));
            log.issue(p.number, what, (p.origin.pe, owner.unwrap_or(p.origin.pe)), t.bytes());
        }
        self.queue.push(p);
        if self.chance(4) {
            self.land(world, self.queue.len() - 1)?;
        } else if self.queue.len() > super::DEPTH {
            let mut i = 0;
            while i < self.queue.len() / 2 {
                i += usize::from(!self.land(world, i)?);
            }
            // Operations without a wait are dropped in the end.
            let excess = self.queue.len().saturating_sub(super::DEPTH / 2);
            let mut left = excess;
            self.queue.retain(|p| {
                let drop = left > 0 && p.is_landed();
                left -= usize::from(drop);
                !drop
            });
        }
        Ok(())
    }

    /// Cuts a copy into pieces that complete separately.
    fn cut(&mut self, t: Transfer) -> Vec<Transfer> {
        let pieces = 1 + self.rng.next() % PIECES;
        if pieces == 1 || t.data.is_some() {
            return vec![t];
        }
        let unit = t.bytes().div_ceil(pieces as usize).next_multiple_of(16);
        let mut out = Vec::new();
        let mut segments = Vec::new();
        let mut room = unit;
        for mut s in t.segments.iter().copied() {
            while s.len > 0 {
                let n = s.len.min(room);
                segments.push(Segment { len: n, ..s });
                s.from = s.from.map(|f| Spot { at: f.at + n, ..f });
                s.to.at += n;
                s.len -= n;
                room -= n;
                if room == 0 {
                    room = unit;
                    out.push(Transfer { segments: std::mem::take(&mut segments), ..t.clone_head() });
                }
            }
        }
        if !segments.is_empty() {
            out.push(Transfer { segments, ..t.clone_head() });
        }
        out
    }
}

impl Transfer {
    /// Clones everything but the segments.
    fn clone_head(&self) -> Transfer {
        Transfer {
            segments: Vec::new(),
            links: self.links,
            fill: self.fill,
            convert: self.convert,
            reduction: self.reduction.clone(),
            data: None,
        }
    }
}
