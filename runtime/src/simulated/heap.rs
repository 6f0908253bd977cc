//! Symmetric memory and teams, which all PEs create in the same order.

use super::state::{State, from_sim};
use crate::error::Result;
use std::collections::BTreeMap;
use weft_sim::{Machine, Name, Symmetric, Team};

/// Objects that the PEs create together. Each PE asks for the next one, and the first PE that asks
/// creates it.
#[derive(Default)]
struct Sequence<T> {
    made: Vec<T>,
    /// The index of the next object, by PE.
    next: Vec<usize>,
}

/// Memory on the symmetric heap.
#[derive(Clone, Copy)]
struct Allocation {
    at: Symmetric,
    /// The number of PEs that have freed it.
    freed: u32,
}

pub(super) struct Heap {
    n_pes: u32,
    places: Sequence<Allocation>,
    /// The numbers of allocations, by PE and address there.
    by_address: BTreeMap<(u32, u64), usize>,
    /// Registered private memory, by PE and its address on the heap.
    registered: BTreeMap<(u32, u64), u64>,
    /// Memory of CUDA's virtual memory functions, which is the only memory that can be registered:
    /// its size in bytes by PE and address.
    pub mappings: BTreeMap<(u32, u64), usize>,
    teams: BTreeMap<i32, (Team, Vec<u32>)>,
    /// The number of splits by parent and PE, and the teams of each split.
    splits: BTreeMap<(i32, u32), u64>,
    made: BTreeMap<(i32, u64), Vec<i32>>,
    /// The teams of lists, by the number that the PEs of the list agreed on.
    pub listed: BTreeMap<u64, i32>,
    /// The predefined teams of each PE: its node, and the PEs of the same rank on each node.
    pub predefined: Vec<[i32; 2]>,
}

impl Heap {
    /// Creates a heap, and teams for nodes of `node` PEs.
    pub fn new(machine: &mut Machine, node: u32) -> Result<Heap> {
        let n_pes = machine.config().n_pes as u32;
        let mut heap = Heap {
            n_pes,
            places: Sequence { made: Vec::new(), next: vec![0; n_pes as usize] },
            by_address: BTreeMap::new(),
            registered: BTreeMap::new(),
            mappings: BTreeMap::new(),
            teams: [(Team::WORLD.handle(), (Team::WORLD, (0..n_pes).collect()))].into(),
            splits: BTreeMap::new(),
            made: BTreeMap::new(),
            listed: BTreeMap::new(),
            predefined: vec![[0; 2]; n_pes as usize],
        };
        let (nodes, places) = (n_pes.div_ceil(node), node.min(n_pes));
        let mut all = Vec::new();
        for n in 0..nodes {
            all.push((0, (n * node..((n + 1) * node).min(n_pes)).collect::<Vec<u32>>()));
        }
        for place in 0..places {
            all.push((1, (place..n_pes).step_by(node as usize).collect()));
        }
        for (which, members) in all {
            let team = heap.add_team(machine, &members)?;
            members.iter().for_each(|pe| heap.predefined[*pe as usize][which] = team);
        }
        Ok(heap)
    }

    /// Adds a team. A team of all PEs in order is the world.
    pub fn add_team(&mut self, machine: &mut Machine, members: &[u32]) -> Result<i32> {
        let pes: Vec<usize> = members.iter().map(|pe| *pe as usize).collect();
        let team = machine.team(&pes).map_err(|e| from_sim(&e))?;
        self.teams.insert(team.handle(), (team, members.to_vec()));
        Ok(team.handle())
    }

    pub fn team(&self, handle: i32) -> Option<&(Team, Vec<u32>)> {
        self.teams.get(&handle)
    }
}

impl State {
    /// Returns the address of the PE's next allocation on the symmetric heap, which has the same
    /// offset on all PEs.
    pub fn alloc_symmetric(&mut self, pe: u32, name: &str, bytes: usize, align: u64) -> Result<u64> {
        let number = self.heap.places.next[pe as usize];
        if number == self.heap.places.made.len() {
            let at = self.machine.alloc_symmetric(name, bytes as u64, align).map_err(|e| from_sim(&e))?;
            self.heap.places.made.push(Allocation { at, freed: 0 });
        }
        self.heap.places.next[pe as usize] += 1;
        let place = self.heap.places.made[number].at;
        let address = self.machine.local_addr(pe as usize, place).map_err(|e| from_sim(&e))?;
        self.heap.by_address.insert((pe, address), number);
        Ok(address)
    }

    /// Sets the name of the allocation at an address of a PE.
    pub fn set_name(&mut self, pe: u32, address: u64, name: Name) {
        if let Some(number) = self.heap.by_address.get(&(pe, address)) {
            self.machine.set_name(self.heap.places.made[*number].at, name);
        }
    }

    /// Frees a PE's part of an allocation, which is free when all PEs have freed it.
    pub fn free_symmetric(&mut self, pe: u32, address: u64) -> Result<()> {
        let Some(number) = self.heap.by_address.remove(&(pe, address)) else { return Ok(()) };
        let place = &mut self.heap.places.made[number];
        place.freed += 1;
        match place.freed == self.heap.n_pes {
            true => self.machine.free_symmetric(place.at).map_err(|e| from_sim(&e)),
            false => Ok(()),
        }
    }

    /// Maps a PE's memory to the symmetric heap, and returns its address there, or 0 for other
    /// memory.
    pub fn register(&mut self, pe: u32, address: u64, bytes: usize) -> Result<u64> {
        let whole = self.heap.mappings.get(&(pe, address)) == Some(&bytes);
        // Every PE takes part, so that the offsets agree on all PEs.
        let on_heap = self.alloc_symmetric(pe, "registered memory", bytes, 1 << 16)?;
        if !whole {
            return self.free_symmetric(pe, on_heap).map(|()| 0);
        }
        let number = self.heap.by_address[&(pe, on_heap)];
        let place = self.heap.places.made[number].at;
        self.machine.register(pe as usize, address, place).map_err(|e| from_sim(&e))?;
        self.heap.registered.insert((pe, on_heap), address);
        Ok(on_heap)
    }

    pub fn unregister(&mut self, pe: u32, on_heap: u64) -> Result<()> {
        if let Some(address) = self.heap.registered.remove(&(pe, on_heap)) {
            self.machine.unregister(pe as usize, address).map_err(|e| from_sim(&e))?;
        }
        self.free_symmetric(pe, on_heap)
    }

    /// Returns the teams of a parent's split, which is the PE's next split of that parent.
    pub fn split(&mut self, pe: u32, parent: i32, parts: &[Vec<u32>]) -> Result<Vec<i32>> {
        let count = self.heap.splits.entry((parent, pe)).or_default();
        let number = *count;
        *count += 1;
        if let Some(made) = self.heap.made.get(&(parent, number)) {
            return Ok(made.clone());
        }
        let State { heap, machine, .. } = self;
        let made: Vec<i32> =
            parts.iter().map(|members| heap.add_team(machine, members)).collect::<Result<_>>()?;
        self.heap.made.insert((parent, number), made.clone());
        Ok(made)
    }
}
