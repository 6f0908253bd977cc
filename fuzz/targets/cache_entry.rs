//! Entries of the caches are read or rejected. An entry that was read is written unchanged.
#![no_main]

use weft::gpu::cache::Entry;
use weft::gpu::cache::StoredValue;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(entry) = Entry::decode(bytes) {
        let again = Entry::decode(&entry.encode().expect("an entry")).expect("its own bytes");
        assert_eq!((again.info, again.image), (entry.info, entry.image));
    }
});
