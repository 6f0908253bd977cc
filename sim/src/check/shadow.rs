//! Who has accessed memory last: a cell for every 4 bytes that a launch has touched.

use super::{AccessKind, Agent};
use crate::exec::order::{Order, Scope};

/// An access as it is remembered: by lanes of one warp, in one instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// Of the event; of an operation under way, of its issue. 0: none.
    pub time: u64,
    pub warp: u32,
    pub pc: u32,
    pub lanes: u32,
    /// Which of the cell's bytes.
    pub bytes: u8,
    pub agent: Agent,
    /// Scope of a strong access.
    pub strong: Option<Scope>,
    pub flags: u8,
}

/// The write is an atomic read and write.
pub(super) const UPDATE: u8 = 1;
/// The cell has a synchronisation variable.
pub(super) const SYNC: u8 = 2;
/// The write leaves what is there.
pub(super) const UNCHANGED: u8 = 8;
/// Not a record: `pc` is the number of a list of them.
const LIST: u8 = 4;

/// The latest accesses to 4 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub write: Record,
    pub read: Record,
}

/// What a cell's older accesses are looked at for.
pub(super) struct Plain<F> {
    pub kind: AccessKind,
    /// Bytes that nobody has written are fine.
    pub unwritten: bool,
    /// Whether the thread knows a record.
    pub knows: F,
}

impl Cell {
    /// The usual case of an access: at most one write and one read before, which the thread knows, and nothing to
    /// report. Answers whether it is the case, and the access is remembered then.
    #[inline]
    pub(super) fn plain(
        &mut self,
        me: &Record,
        how: &mut Plain<impl FnMut(&Record, AccessKind) -> bool>,
    ) -> bool {
        let (w, r) = (&self.write, &self.read);
        let knows = &mut how.knows;
        if (w.flags | r.flags) & LIST != 0 || w.bytes & me.bytes != 0 && !knows(w, AccessKind::Write) {
            return false;
        }
        if how.kind.reads() && !how.unwritten && me.bytes & !w.bytes != 0 {
            return false;
        }
        if how.kind.writes() {
            let sync = w.flags & SYNC;
            let partial = (w.bytes | r.bytes) & !me.bytes != 0;
            if partial || sync != 0 && me.strong.is_none() || r.bytes != 0 && !knows(r, AccessKind::Read) {
                return false;
            }
            *self = Cell { write: Record { flags: me.flags | sync, ..*me }, read: Record::default() };
            return true;
        }
        if r.time != 0 && r.same_event(me) {
            self.read.lanes |= me.lanes;
            return true;
        }
        let own = r.warp == me.warp && r.agent == me.agent && r.lanes & !me.lanes == 0;
        let covered = r.time == 0 || r.bytes & !me.bytes == 0 && (own || knows(r, AccessKind::Read));
        if covered {
            self.read = *me;
        }
        covered
    }
}

/// Most records of concurrent reads that a cell keeps; the oldest are forgotten first.
const READS: usize = 512;
/// Cells of a page.
pub(super) const PAGE: usize = 256;

type Page = Box<[Cell; PAGE]>;

/// Cells of all buffers, and the lists that some of them need.
#[derive(Default)]
pub(super) struct Shadow {
    spaces: Vec<Vec<Option<Page>>>,
    lists: Vec<Vec<Record>>,
    free: Vec<u32>,
}

impl Record {
    pub(super) fn new(time: u64, warp: u32, pc: u32, lanes: u32, agent: Agent, order: &Order) -> Record {
        Record { time, warp, pc, lanes, agent, strong: order.strong, bytes: 0, flags: 0 }
    }

    fn is_list(&self) -> bool {
        self.flags & LIST != 0
    }

    /// Of the same threads' same instruction.
    fn same_event(&self, other: &Record) -> bool {
        self.time == other.time
            && self.warp == other.warp
            && self.bytes == other.bytes
            && self.agent == other.agent
    }
}

impl Shadow {
    #[inline]
    pub(super) fn cell(&mut self, space: usize, word: usize) -> &mut Cell {
        if self.spaces.len() <= space {
            self.spaces.resize_with(space + 1, Vec::new);
        }
        let pages = &mut self.spaces[space];
        let page = word / PAGE;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        let cells = pages[page].get_or_insert_with(|| Box::new([Cell::default(); PAGE]));
        &mut cells[word % PAGE]
    }

    /// The cells from one word to another (inclusive), as far as they lie together.
    #[inline]
    pub(super) fn run(&mut self, space: usize, from: usize, to: usize) -> &mut [Cell] {
        self.cell(space, from);
        let end = to.min(from | (PAGE - 1));
        match self.spaces.get_mut(space).and_then(|pages| pages.get_mut(from / PAGE)) {
            Some(Some(cells)) => &mut cells[from % PAGE..=end % PAGE],
            _ => &mut [],
        }
    }

    /// Forgets a space: its memory begins a new life.
    pub(super) fn clear(&mut self, space: usize) {
        let Some(pages) = self.spaces.get_mut(space) else { return };
        for page in pages.iter_mut().flatten() {
            for cell in page.iter_mut() {
                for r in [cell.write, cell.read] {
                    if r.is_list() {
                        self.lists[r.pc as usize].clear();
                        self.free.push(r.pc);
                    }
                }
                *cell = Cell::default();
            }
        }
    }

    /// The records behind one of a cell's.
    #[inline]
    pub(super) fn records<'s>(&'s self, r: &'s Record) -> &'s [Record] {
        if r.time == 0 {
            &[]
        } else if r.is_list() {
            &self.lists[r.pc as usize]
        } else {
            std::slice::from_ref(r)
        }
    }

    /// Puts records behind one of a cell's: none, one in place, more in a list.
    fn set(&mut self, slot: &mut Record, records: Vec<Record>) {
        let list = slot.is_list().then_some(slot.pc);
        match (records.as_slice(), list) {
            ([], None) => *slot = Record::default(),
            ([one], None) => *slot = *one,
            ([] | [_], Some(n)) => {
                *slot = records.first().copied().unwrap_or_default();
                self.lists[n as usize].clear();
                self.free.push(n);
            }
            (_, Some(n)) => self.lists[n as usize] = records,
            (_, None) => {
                let n = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    self.lists.len() as u32 - 1
                });
                self.lists[n as usize] = records;
                *slot = Record { time: 1, pc: n, flags: LIST, ..Record::default() };
            }
        }
    }

    /// Adds a read. `ordered` tells whether an older one is known to the reader: then that one adds nothing.
    pub(super) fn add_read(&mut self, slot: &mut Record, new: Record, ordered: impl Fn(&Record) -> bool) {
        let drop = |r: &mut Record| {
            if r.bytes & !new.bytes != 0 {
                return false;
            }
            if r.warp == new.warp && r.agent == new.agent {
                r.lanes &= !new.lanes;
            }
            r.lanes == 0 || ordered(r)
        };
        if slot.time == 0 {
            *slot = new;
        } else if !slot.is_list() {
            if slot.same_event(&new) {
                slot.lanes |= new.lanes;
                return;
            }
            let mut old = *slot;
            if drop(&mut old) {
                *slot = new;
            } else {
                self.set(slot, vec![old, new]);
            }
        } else {
            let mut list = std::mem::take(&mut self.lists[slot.pc as usize]);
            if let Some(same) = list.iter_mut().rev().take(4).find(|r| r.same_event(&new)) {
                same.lanes |= new.lanes;
                self.lists[slot.pc as usize] = list;
                return;
            }
            // Of long lists only the same warp's records are looked at each time.
            let all = list.len() < 16 || list.len().is_power_of_two();
            list.retain_mut(|r| !((all || r.warp == new.warp) && drop(r)));
            if list.len() >= READS {
                list.drain(..READS / 2);
            }
            list.push(new);
            self.set(slot, list);
        }
    }

    /// Replaces what is known of the bytes that `new` writes, reads included.
    pub(super) fn add_write(&mut self, cell: &mut Cell, new: Record) {
        for slot in [&mut cell.write, &mut cell.read] {
            if slot.time == 0 || !slot.is_list() && slot.bytes & !new.bytes == 0 {
                *slot = Record::default();
                continue;
            }
            let mut rest = self.records(slot).to_vec();
            rest.retain_mut(|r| {
                r.bytes &= !new.bytes;
                r.bytes != 0
            });
            self.set(slot, rest);
        }
        if cell.write.time == 0 {
            cell.write = new;
        } else {
            let mut all = self.records(&cell.write).to_vec();
            all.push(new);
            self.set(&mut cell.write, all);
        }
    }
}
