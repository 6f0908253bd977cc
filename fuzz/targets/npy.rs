//! A `.npy` file is read, or rejected. An array that was read has the size that the file states.
#![no_main]

use weft_run::array::Array;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = Array::from_npy(bytes) {
        assert_eq!(array.len().checked_mul(array.dtype.bytes().into()), u64::try_from(array.data.len()).ok());
        assert!(array.data.len() <= bytes.len());
    }
});
