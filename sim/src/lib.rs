//! warpweft: sim.
