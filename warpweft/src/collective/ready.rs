//! A launch that is prepared for the calls of one request.

use super::call::{Call, Flat};
use crate::gpu::GpuError;
use std::sync::Arc;
use weft_runtime::cuda::Stream;
use weft_runtime::launch::{ArgumentValue, AsArgument, Elements, Prepared};

/// A launch that was prepared for calls of one request.
#[derive(Clone)]
pub(super) struct Ready {
    pub launch: Arc<Prepared>,
    /// Positions of `x` and `out` among the kernel's arguments.
    pub places: [Option<usize>; 2],
}

impl Ready {
    /// Whether it can still be launched.
    pub fn is_current(&self) -> bool {
        self.launch.is_current()
    }

    /// Launches it for a call with the same request.
    pub fn go(&self, call: &Call<'_>, stream: &Stream) -> Result<(), GpuError> {
        let (x, out) = (Flat(call.x), call.out.map(Flat));
        let sides = [Some(&x), out.as_ref()];
        let others = (0..2).filter_map(|side| {
            let (place, given) = (self.places[side]?, sides[side]?);
            let given = given.argument(stream);
            let moves = matches!(
                given.given(),
                ArgumentValue::Tensor { symmetric: false, extent: Elements::Flat(_), .. }
            );
            moves.then_some((place, given))
        });
        Ok(self.launch.launch(stream, &others.collect::<Vec<_>>())?)
    }
}
