//! Numbers of the machine model that all layers know.

/// Threads of a warp.
pub(crate) const LANES: usize = 32;

/// Barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// One register of a warp: a value for each lane, zero-extended to 64 bits.
pub(crate) type Lanes = [u64; LANES];

/// Lanes whose bit is set, lowest first.
#[inline]
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        (lane < 32).then(|| {
            mask &= mask - 1;
            lane as usize
        })
    })
}
