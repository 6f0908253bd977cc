//! The sums that reductions may compute.

use super::Request;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_runtime::DType;

/// The sums that a call allows for a reduction, from the strictest level on. An algorithm is chosen
/// only if its own level is not above that of the call. Collectives that reduce nothing only move
/// data, and ignore the level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sums {
    /// An element's result depends only on that element's value on each PE, on the element type, on the operation and on
    /// the number of PEs. It is combined in the order of the ranks, in the type that the element type is summed in, and
    /// rounded once. So it has the same bits in every launch, on every PE, at every position, for every count and plan, and
    /// however a batch is split over calls.
    Deterministic,
    /// Elements are combined in the type that the element type is summed in and rounded once. The order can depend on the
    /// algorithm and on the position of the element. All PEs get the same bits.
    #[default]
    Ordinary,
    /// Elements can be sent in fewer bits, with an error that [`Sums::quantised_error`] bounds. All PEs get the same bits.
    Quantised,
}

impl Sums {
    /// Returns the greatest error of an element that the algorithm `quantised` reduces, before it is rounded to its type.
    ///
    /// `inputs` contains, for each PE, the largest magnitude in the block of the element. `result`
    /// is the largest magnitude of the exact results of that block. A block is at most the whole
    /// operand, so the largest magnitudes of all elements give a bound for all elements. The PE
    /// that sums has its own elements exactly, so the smallest of the input magnitudes does not
    /// count.
    pub fn quantised_error(inputs: &[f64], result: f64) -> f64 {
        /// Half of a scale, and the rounding of scales and products.
        const PART: f64 = 1.0 / 250.0;
        let least = inputs.iter().copied().fold(f64::INFINITY, f64::min);
        let sent: f64 = inputs.iter().sum::<f64>() - if least.is_finite() { least } else { 0.0 };
        let before = sent * PART;
        before + (result + before) * PART
    }

    /// Every level, from the strictest on.
    pub const ALL: [Sums; 3] = [Sums::Deterministic, Sums::Ordinary, Sums::Quantised];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        ["deterministic", "ordinary", "quantised"][self as usize]
    }

    /// The level of that name.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn parse(name: &str) -> Result<Sums, String> {
        let known = Sums::ALL.map(Sums::name).join(", ");
        let found = Sums::ALL.into_iter().find(|s| s.name() == name);
        found.ok_or_else(|| format!("`{name}` is not a kind of sums: expected one of {known}"))
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Algorithms that combine elements in the order of ranks, whatever the request.
pub(super) fn ranked(_: &Request) -> Sums {
    Sums::Deterministic
}

/// Algorithms that let the switch combine elements where there is one. Its order is not documented.
pub(super) fn by_switch(request: &Request) -> Sums {
    if request.multicast { Sums::Ordinary } else { Sums::Deterministic }
}

/// Algorithms in which each PE begins with its own element. The order of two elements makes no difference.
pub(super) fn rotated(request: &Request) -> Sums {
    if request.n_pes > 2 { Sums::Ordinary } else { Sums::Deterministic }
}

/// Algorithms that send elements in fewer bits.
pub(super) fn quantised(_: &Request) -> Sums {
    Sums::Quantised
}

/// Whether elements of a type can be sent in fewer bits.
pub(super) fn is_quantisable(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Algorithm, Collective};

    #[test]
    fn names_read_back() {
        assert!(Sums::ALL.into_iter().all(|s| Sums::parse(s.name()) == Ok(s)));
        assert!(Sums::parse("exact").unwrap_err().contains("deterministic, ordinary, quantised"));
        assert!(Sums::Deterministic < Sums::Ordinary && Sums::Ordinary < Sums::Quantised);
    }

    #[test]
    fn what_each_level_allows() {
        let allowed = |sums, change: fn(&mut Request)| {
            let mut request = Request::new(Collective::AllReduce, DType::BF16, 1 << 20, 8);
            request.sums = sums;
            change(&mut request);
            let may = |a: &&'static Algorithm| a.allowed(&request).is_ok();
            Algorithm::of(Collective::AllReduce).filter(may).map(|a| a.name).collect::<Vec<_>>()
        };
        let strict = allowed(Sums::Deterministic, |_| {});
        assert_eq!(
            strict,
            [
                "net",
                "ll",
                "lamport",
                "lamport_two_shot",
                "ll_two_shot",
                "one_shot",
                "push_direct",
                "push",
                "two_shot"
            ]
        );
        let pair = allowed(Sums::Deterministic, |r| r.n_pes = 2);
        assert!(pair.contains(&"rotate"), "{pair:?}");
        let switch = allowed(Sums::Deterministic, |r| r.multicast = true);
        assert!(switch.contains(&"ll_switch") && !switch.contains(&"two_shot"), "{switch:?}");
        assert!(!allowed(Sums::Ordinary, |_| {}).contains(&"quantised"));
        assert!(allowed(Sums::Quantised, |_| {}).contains(&"quantised"));
        assert!(!allowed(Sums::Quantised, |r| r.dtype = DType::I32).contains(&"quantised"));
    }

    #[test]
    fn the_error_counts_all_but_the_least_and_the_result() {
        assert_eq!(Sums::quantised_error(&[1.0], 0.0), 0.0);
        let of_two = Sums::quantised_error(&[250.0, 500.0], 750.0);
        assert!((of_two - (2.0 + 752.0 / 250.0)).abs() < 1e-12, "{of_two}");
    }
}
