//! The devices on which code for a target runs.

/// Whether code for a target runs on a device of that compute capability (PTX ISA, `.target`): `sm_90a` on 9.0 alone,
/// `sm_100f` on 10.0 and later 10.x, `sm_80` on all from 8.0.
pub fn runs_on(target: &str, (major, minor): (u32, u32)) -> bool {
    let Some(rest) = target.strip_prefix("sm_") else { return false };
    let number = rest.trim_end_matches(['a', 'f']);
    let Ok(least) = number.parse::<u32>() else { return false };
    let device = major * 10 + minor;
    match &rest[number.len()..] {
        "" => device >= least,
        "a" => device == least,
        "f" => device >= least && major == least / 10,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_an_architecture_runs_on_it_alone() {
        for (target, on, not) in [
            ("sm_80", vec![(8, 0), (8, 9), (9, 0), (12, 0)], vec![(7, 5)]),
            ("sm_90a", vec![(9, 0)], vec![(8, 9), (10, 0)]),
            ("sm_100f", vec![(10, 0), (10, 3)], vec![(9, 0), (12, 0)]),
            ("sm_", vec![], vec![(9, 0)]),
            ("compute_90", vec![], vec![(9, 0)]),
            ("sm_90af", vec![], vec![(9, 0)]),
        ] {
            assert!(on.iter().all(|c| runs_on(target, *c)), "{target}");
            assert!(!not.iter().any(|c| runs_on(target, *c)), "{target}");
        }
    }
}
