//! The memory layout through which compiled code reports long waits to the host.
//!
//! A kernel whose waits are watched gets the address of a block in the memory of its GPU
//! ([`Hidden::Watch`](crate::Hidden::Watch)). The block has the address of a ring of records in the
//! host's memory, which the host can read while the kernel runs. A thread whose wait exceeds the
//! limit writes one record there and continues to wait.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The offset in the block of the address of the ring (`u64`).
pub const RING: u32 = 0;
/// The offset in the block of the limit of a wait, in cycles of the multiprocessor's clock (`i64`).
pub const LIMIT: u32 = 8;
/// The offset in the block of the number of launches that have begun (`u32`).
pub const LAUNCHES: u32 = 16;
/// The offset in the block of the number of records that were requested (`u32`).
pub const CURSOR: u32 = 20;
/// The offset in the block of the claims: a `u32` for each class of waits, which holds the last
/// launch that reported one.
pub const CLAIMS: u32 = 64;
/// The number of claims, a power of two. A CTA and a wait have one. If there are more classes, they
/// share claims.
pub const CLAIM_COUNT: u32 = 1024;
/// The size of the block in bytes.
pub const BLOCK_BYTES: u32 = CLAIMS + 4 * CLAIM_COUNT;
/// The number of records in the ring. Later records are dropped and counted, so that no wait
/// overwrites the report of another.
pub const RECORDS: u32 = 128;
/// The size of a record in bytes.
pub const RECORD_BYTES: u32 = 64;
/// The offset of the number of dropped records, which follows the ring (`u32`).
pub const DROPPED: u32 = RECORDS * RECORD_BYTES;
/// The size of the ring and the data after it in bytes.
pub const RING_BYTES: u32 = DROPPED + 64;

/// A record in the form in which the host reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitRecord {
    /// The number of the wait in its kernel.
    pub wait: u32,
    /// The index of the CTA in the grid, with x fastest.
    pub cta: u32,
    /// The index of the thread in the CTA, or in its role if the wait is in one.
    pub thread: u32,
    /// The number of launches of the kernel that had begun.
    pub launch: u32,
    /// The address that the thread polls, or 0 if the code cannot determine it.
    pub address: u64,
    /// The value that the thread saw there last.
    pub seen: i64,
    /// The value with which the thread compares it.
    pub expected: i64,
    /// The time that the thread had waited, in cycles.
    pub cycles: i64,
}

/// The offsets of the fields of a record. The mark is written last, so a record with a mark is
/// complete.
pub mod field {
    /// The offset of [`WaitRecord::wait`](super::WaitRecord::wait), a `u32`.
    pub const WAIT: u32 = 0;
    /// The offset of [`WaitRecord::cta`](super::WaitRecord::cta), a `u32`.
    pub const CTA: u32 = 4;
    /// The offset of [`WaitRecord::thread`](super::WaitRecord::thread), a `u32`.
    pub const THREAD: u32 = 8;
    /// The offset of [`WaitRecord::launch`](super::WaitRecord::launch), a `u32`.
    pub const LAUNCH: u32 = 12;
    /// The offset of [`WaitRecord::address`](super::WaitRecord::address), a `u64`.
    pub const ADDRESS: u32 = 16;
    /// The offset of [`WaitRecord::seen`](super::WaitRecord::seen), an `i64`.
    pub const SEEN: u32 = 24;
    /// The offset of [`WaitRecord::expected`](super::WaitRecord::expected), an `i64`.
    pub const EXPECTED: u32 = 32;
    /// The offset of [`WaitRecord::cycles`](super::WaitRecord::cycles), an `i64`.
    pub const CYCLES: u32 = 40;
    /// The offset of the mark, a `u32` that is 1 when the record is complete.
    pub const MARK: u32 = 48;
}

impl WaitRecord {
    /// Reads a record. The result is `None` if there are too few bytes, or if the record is not
    /// complete.
    pub fn read(bytes: &[u8]) -> Option<WaitRecord> {
        let u32_at = |at: u32| Some(u32::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        let i64_at = |at: u32| Some(i64::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        (u32_at(field::MARK)? == 1).then_some(())?;
        Some(WaitRecord {
            wait: u32_at(field::WAIT)?,
            cta: u32_at(field::CTA)?,
            thread: u32_at(field::THREAD)?,
            launch: u32_at(field::LAUNCH)?,
            address: i64_at(field::ADDRESS)?.cast_unsigned(),
            seen: i64_at(field::SEEN)?,
            expected: i64_at(field::EXPECTED)?,
            cycles: i64_at(field::CYCLES)?,
        })
    }
}

/// A wait of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitInfo {
    /// The place of the wait in the text, such as `k.weft:12`.
    pub place: String,
    /// The role whose threads wait, if the wait is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The object that the threads poll.
    pub on: Watched,
    /// The comparison that ends the wait, such as `>=` in `seen >= expected`. It is absent if the
    /// code does not compare the value with a single other value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// The object that a wait polls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// The parameter with this name, a tensor or the counters of a barrier.
    Parameter(String),
    /// A memory address that the code computes.
    Memory,
    /// A stage of a pipeline. The expected value is the parity of the phase.
    Stage,
    /// A variable that an NVSHMEM function tests.
    Variable,
}

impl fmt::Display for WaitInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: waits for ", self.place)?;
        match &self.on {
            Watched::Parameter(name) => write!(f, "`{name}`")?,
            Watched::Memory => f.write_str("memory")?,
            Watched::Stage => f.write_str("a stage of a pipeline")?,
            Watched::Variable => f.write_str("a variable")?,
        }
        if let Some(until) = &self.until {
            write!(f, " to be {until} a value")?;
        }
        self.role.as_ref().map_or(Ok(()), |role| write!(f, ", in role `{role}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_records_are_read() {
        let mut bytes = [0u8; RECORD_BYTES as usize];
        let mut put = |at: u32, value: &[u8]| {
            bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
        };
        put(field::WAIT, &3u32.to_le_bytes());
        put(field::CTA, &7u32.to_le_bytes());
        put(field::THREAD, &31u32.to_le_bytes());
        put(field::LAUNCH, &2u32.to_le_bytes());
        put(field::ADDRESS, &0x7000u64.to_le_bytes());
        put(field::SEEN, &(-1i64).to_le_bytes());
        put(field::EXPECTED, &5i64.to_le_bytes());
        put(field::CYCLES, &9i64.to_le_bytes());
        assert_eq!(WaitRecord::read(&bytes), None, "nobody has marked it");
        bytes[field::MARK as usize] = 1;
        let (wait, cta, thread, launch) = (3, 7, 31, 2);
        let record =
            WaitRecord { wait, cta, thread, launch, address: 0x7000, seen: -1, expected: 5, cycles: 9 };
        assert_eq!(WaitRecord::read(&bytes), Some(record));
        assert_eq!(WaitRecord::read(&bytes[..20]), None);
    }
}
