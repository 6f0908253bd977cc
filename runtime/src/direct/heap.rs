//! The positions of allocations in chunks of symmetric memory. Every PE makes the same calls in the
//! same order, so that an allocation has the same position on all of them.

use std::collections::BTreeMap;

/// The number of a chunk, and the offset from its start in bytes.
pub(super) type ProcessRank = (usize, usize);

/// The free parts of all chunks.
#[derive(Default, Debug)]
pub(super) struct Heap {
    /// The chunks by number; none for a chunk that was given back.
    chunks: Vec<Option<Chunk>>,
}

#[derive(Debug)]
struct Chunk {
    bytes: usize,
    /// The free parts by their start. Adjacent parts are merged.
    free: BTreeMap<usize, usize>,
}

impl Heap {
    /// Takes `bytes` bytes at a multiple of `align`, in the first part that is large enough.
    /// Returns `None` if no chunk has such a part.
    pub fn take(&mut self, bytes: usize, align: usize) -> Option<ProcessRank> {
        let bytes = bytes.checked_next_multiple_of(align)?;
        self.chunks.iter_mut().enumerate().find_map(|(number, chunk)| {
            let free = &mut chunk.as_mut()?.free;
            let (start, room) = free.iter().map(|(s, n)| (*s, *n)).find(|(_, room)| *room >= bytes)?;
            free.remove(&start);
            if room > bytes {
                free.insert(start + bytes, room - bytes);
            }
            Some((number, start))
        })
    }

    /// Gives back a result of [`take`](Heap::take) for that number of bytes. Returns whether the
    /// chunk is now empty.
    pub fn give(&mut self, (number, start): ProcessRank, bytes: usize, align: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(number).and_then(Option::as_mut) else { return false };
        let (mut start, mut bytes) = (start, bytes.next_multiple_of(align));
        if let Some(after) = chunk.free.remove(&(start + bytes)) {
            bytes += after;
        }
        if let Some((before, room)) = chunk.free.range(..start).next_back().map(|(s, n)| (*s, *n))
            && before + room == start
        {
            chunk.free.remove(&before);
            (start, bytes) = (before, room + bytes);
        }
        chunk.free.insert(start, bytes);
        bytes == chunk.bytes
    }

    /// Adds a chunk and returns its number.
    pub fn add(&mut self, bytes: usize) -> usize {
        self.chunks.push(Some(Chunk { bytes, free: [(0, bytes)].into() }));
        self.chunks.len() - 1
    }

    /// Removes a chunk. Its number is not used again.
    pub fn remove(&mut self, number: usize) {
        if let Some(chunk) = self.chunks.get_mut(number) {
            *chunk = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALIGN: usize = 256;

    #[test]
    fn parts_that_touch_become_one() {
        let mut heap = Heap::default();
        assert_eq!(heap.take(1, ALIGN), None);
        assert_eq!(heap.add(1024), 0);
        let places: Vec<_> = [100, 256, 257].iter().map(|n| heap.take(*n, ALIGN)).collect();
        assert_eq!(places, [Some((0, 0)), Some((0, 256)), Some((0, 512))]);
        assert_eq!(heap.take(1, ALIGN), None);
        assert!(!heap.give((0, 256), 256, ALIGN));
        assert!(!heap.give((0, 0), 100, ALIGN));
        assert_eq!(heap.take(512, ALIGN), Some((0, 0)));
        assert!(!heap.give((0, 0), 512, ALIGN));
        assert!(heap.give((0, 512), 257, ALIGN));
        heap.remove(0);
        assert_eq!(heap.take(1, ALIGN), None);
        assert_eq!(heap.add(256), 1);
        assert_eq!(heap.take(1, ALIGN), Some((1, 0)));
    }

    proptest! {
        /// Two heaps with the same calls agree, allocations do not overlap, and all memory becomes
        /// free again.
        #[test]
        fn places_are_apart(calls in prop::collection::vec((any::<bool>(), 1usize..5000, any::<prop::sample::Index>()), 1..200)) {
            let (mut a, mut b) = (Heap::default(), Heap::default());
            let mut live: Vec<(ProcessRank, usize)> = Vec::new();
            for (is_take, bytes, which) in calls {
                if is_take || live.is_empty() {
                    let place = match a.take(bytes, ALIGN) {
                        Some(place) => place,
                        None => {
                            let size = bytes.next_multiple_of(ALIGN).max(8192);
                            prop_assert_eq!(a.add(size), b.add(size));
                            a.take(bytes, ALIGN).unwrap()
                        }
                    };
                    prop_assert_eq!(b.take(bytes, ALIGN), Some(place));
                    for ((chunk, start), n) in &live {
                        let apart = *chunk != place.0 || start + n <= place.1 || place.1 + bytes <= *start;
                        prop_assert!(apart);
                    }
                    prop_assert_eq!(place.1 % ALIGN, 0);
                    live.push((place, bytes));
                } else {
                    let (place, bytes) = live.swap_remove(which.index(live.len()));
                    prop_assert_eq!(a.give(place, bytes, ALIGN), b.give(place, bytes, ALIGN));
                }
            }
            for (place, bytes) in live {
                a.give(place, bytes, ALIGN);
            }
            for chunk in a.chunks.iter().flatten() {
                prop_assert_eq!(&chunk.free, &BTreeMap::from([(0, chunk.bytes)]));
            }
        }
    }
}
