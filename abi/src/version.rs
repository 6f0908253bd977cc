//! Versions of NVSHMEM. The device functions in the code and the host library must have the same
//! version.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A version of NVSHMEM, such as 3.4.5.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NvshmemVersion {
    /// The major version, such as 3 in 3.4.5.
    pub major: u32,
    /// The minor version, such as 4 in 3.4.5.
    pub minor: u32,
    /// The patch version, such as 5 in 3.4.5.
    pub patch: u32,
}

impl NvshmemVersion {
    /// The minor versions that are supported, with any patch.
    pub const SUPPORTED: RangeInclusive<(u32, u32)> = (3, 3)..=(3, 8);

    /// Creates the version number `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> NvshmemVersion {
        NvshmemVersion { major, minor, patch }
    }

    /// Whether the version is one of [`SUPPORTED`](NvshmemVersion::SUPPORTED).
    pub fn is_supported(self) -> bool {
        NvshmemVersion::SUPPORTED.contains(&(self.major, self.minor))
    }
}

impl fmt::Display for NvshmemVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

crate::stored_as_text!(NvshmemVersion);

impl FromStr for NvshmemVersion {
    type Err = String;

    /// Reads `3.4.5`, or `3.4` for `3.4.0`.
    fn from_str(text: &str) -> Result<NvshmemVersion, String> {
        let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[major, minor]) => Ok(NvshmemVersion::new(major, minor, 0)),
            Some(&[major, minor, patch]) => Ok(NvshmemVersion::new(major, minor, patch)),
            _ => Err(format!("`{text}` is not a version: expected a version such as 3.4.5")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_version_as_text() {
        let version = NvshmemVersion::new(3, 4, 5);
        assert_eq!(serde_json::to_string(&version).unwrap(), "\"3.4.5\"");
        assert_eq!(serde_json::from_str::<NvshmemVersion>("\"3.4\"").unwrap(), NvshmemVersion::new(3, 4, 0));
        for text in ["\"3\"", "\"3.4.5.6\"", "\"3.x\"", "\"\"", "34"] {
            assert!(serde_json::from_str::<NvshmemVersion>(text).is_err(), "{text}");
        }
    }
}
