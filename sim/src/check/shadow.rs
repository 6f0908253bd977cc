//! The latest accesses to memory: a cell for every 4 bytes that a launch has touched.

use super::compare::{Comparison, Rest};
use super::{AccessKind, Agent};
use crate::model::WarpId;
use crate::order::{Order, Scope};
use std::ops::RangeInclusive;

/// A remembered access, by lanes of one warp in one instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// The time of the event, or of the issue of a pending operation. 0 stands for no event.
    pub time: u64,
    pub warp: WarpId,
    pub pc: u32,
    pub lanes: u32,
    /// The mask of the accessed bytes of the cell.
    pub bytes: u8,
    pub agent: Agent,
    /// The scope of a strong access.
    pub strong: Option<Scope>,
    pub flags: u8,
}

/// The write is an atomic read and write.
pub(super) const UPDATE: u8 = 1;
/// The cell has a synchronisation variable.
pub(super) const SYNC: u8 = 2;
/// The write does not change the value.
pub(super) const UNCHANGED: u8 = 8;
/// The write releases something.
pub(super) const RELEASED: u8 = 16;
/// The record stands for a list of records, and `pc` is the number of the list.
const LIST: u8 = 4;

/// The latest accesses to 4 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub write: Record,
    pub read: Record,
}

/// The largest number of concurrent reads, and of writes, that a cell keeps; the oldest are
/// forgotten first.
const KEPT: usize = 512;
/// The number of cells in a page.
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
    pub(super) fn new(time: u64, warp: WarpId, pc: u32, lanes: u32, agent: Agent, order: &Order) -> Record {
        Record { time, warp, pc, lanes, agent, strong: order.strong, bytes: 0, flags: 0 }
    }

    pub(super) fn is_list(&self) -> bool {
        self.flags & LIST != 0
    }

    /// The flag that tells whether the cell has a synchronisation variable.
    pub(super) fn sync(&self) -> u8 {
        self.flags & SYNC
    }

    /// Whether both records are of lanes of the same warp in the same instruction.
    pub(super) fn same_instruction(&self, other: &Record) -> bool {
        self.time == other.time && self.warp == other.warp && self.agent == other.agent
    }

    /// Whether both are the same instruction's access to the same bytes.
    pub(super) fn same_event(&self, other: &Record) -> bool {
        self.same_instruction(other) && self.bytes == other.bytes
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

    /// The cell of a word, if its page was accessed.
    pub(super) fn peek(&self, space: usize, word: usize) -> Option<&Cell> {
        Some(&self.spaces.get(space)?.get(word / PAGE)?.as_ref()?[word % PAGE])
    }

    /// The cells from one word to another (inclusive), up to the end of the page.
    #[inline]
    pub(super) fn run(&mut self, space: usize, from: usize, to: usize) -> &mut [Cell] {
        self.cell(space, from);
        let end = to.min(from | (PAGE - 1));
        match self.spaces.get_mut(space).and_then(|pages| pages.get_mut(from / PAGE)) {
            Some(Some(cells)) => &mut cells[from % PAGE..=end % PAGE],
            _ => &mut [],
        }
    }

    /// Whether one of these words has a synchronisation variable.
    pub(super) fn synchronises(&self, space: usize, mut words: RangeInclusive<usize>) -> bool {
        words.any(|word| self.peek(space, word).is_some_and(|cell| cell.write.sync() != 0))
    }

    /// Forgets the accesses to a space, whose memory is allocated anew.
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

    /// The records that a cell's record stands for.
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

    /// Sets the records of a slot: none, one in place, or more in a list.
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

    /// Reduces each record of a slot to the part that stays remembered.
    pub(super) fn keep(&mut self, slot: &mut Record, rests: &[Rest]) {
        let unchanged = |(r, rest): (&Record, &Rest)| (r.bytes, r.lanes) == (rest.bytes, rest.lanes);
        if self.records(slot).iter().zip(rests).all(unchanged) {
            return;
        }
        let rest = |(r, rest): (&Record, &Rest)| Record { bytes: rest.bytes, lanes: rest.lanes, ..*r };
        let left = self.records(slot).iter().zip(rests).map(rest);
        let left = left.filter(|r| r.bytes != 0 && r.lanes != 0).collect();
        self.set(slot, left);
    }

    /// Adds an access to a cell, and removes the accesses that it replaces.
    pub(super) fn remember(
        &mut self,
        cell: &mut Cell,
        new: &Record,
        kind: AccessKind,
        compared: &Comparison,
    ) {
        let sync = cell.write.sync();
        self.keep(&mut cell.write, &compared.writes);
        self.keep(&mut cell.read, &compared.reads);
        self.add(if kind.writes() { &mut cell.write } else { &mut cell.read }, *new);
        cell.write.flags |= sync;
    }

    /// Adds a record to a slot; the lanes of one instruction share one record.
    pub(super) fn add(&mut self, slot: &mut Record, new: Record) {
        if slot.time == 0 {
            *slot = new;
        } else if !slot.is_list() {
            if slot.same_event(&new) {
                slot.lanes |= new.lanes;
            } else {
                self.set(slot, vec![*slot, new]);
            }
        } else {
            let list = &mut self.lists[slot.pc as usize];
            if let Some(same) = list.iter_mut().rev().take(4).find(|r| r.same_event(&new)) {
                same.lanes |= new.lanes;
                return;
            }
            if list.len() >= KEPT {
                list.drain(..KEPT / 2);
            }
            list.push(new);
        }
    }
}
