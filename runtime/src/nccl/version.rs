//! The versions of NCCL and their order.

use std::fmt;

/// A version of NCCL, such as 2.28.9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// The first number, 2 of 2.28.9.
    pub major: u32,
    /// The second number, 28 of 2.28.9.
    pub minor: u32,
    /// The third number, 9 of 2.28.9.
    pub patch: u32,
}

/// The oldest version that has all functions that are called.
pub const OLDEST: Version = Version { major: 2, minor: 19, patch: 0 };

impl Version {
    /// Decodes a `NCCL_VERSION_CODE`, such as 22809. Codes before 2.9 had one digit less.
    pub fn of(code: i32) -> Version {
        let code = u32::try_from(code).unwrap_or(0);
        let (major, rest) =
            if code < 10_000 { (code / 1000, code % 1000) } else { (code / 10_000, code % 10_000) };
        Version { major, minor: rest / 100, patch: rest % 100 }
    }

    /// Whether all-gathers and reduce-scatters over windows give wrong results if a PE's part is
    /// not a multiple of 8 bytes, as those of 2.28.3 and 2.28.9 did on 2 H200s. The low-latency
    /// symmetric kernels of 2.28.3 use steps of 8 bytes if a CTA's share is a multiple of them,
    /// those of 2.28.7 if the part is (`lowBits` in `src/device/symmetric/all_gather.cuh` and
    /// `reduce_scatter.cuh`). All-gathers of 2.28.9 out of place are right, but parts that do not
    /// begin at a multiple of 8 bytes are still wrong. Later versions were not tried.
    pub fn misplaces_parts(self) -> bool {
        (self.major, self.minor) == (2, 28)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_nccl_h() {
        let text = |code| Version::of(code).to_string();
        assert_eq!([text(22809), text(23203), text(2708), text(-1)], ["2.28.9", "2.32.3", "2.7.8", "0.0.0"]);
        assert!(Version::of(22809) > OLDEST && Version::of(21805) < OLDEST);
        let misplace = [22707, 22803, 22809, 22903].map(|code| Version::of(code).misplaces_parts());
        assert_eq!(misplace, [false, true, true, false]);
    }
}
