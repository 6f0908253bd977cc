//! Copies between tensors that are kernel arguments, by the copy engine.
#![allow(unsafe_code, reason = "ranges of memory that the caller's tensors keep")]

use super::{Argument, ArgumentValue, AsArgument, Elements};
use crate::cuda::copy::{self, Range};
use crate::cuda::{Stream, keep};
use crate::error::{self, Error, Result};
use crate::memory::SignalOp;
use crate::world::World;

/// A range of bytes to copy from one tensor to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The rank in the world of the destination PE.
    pub pe: u32,
    /// The first byte of the tensor that is written.
    pub to: usize,
    /// The first byte of the tensor that is read.
    pub from: usize,
    /// The number of bytes.
    pub bytes: usize,
}

/// The address of a range of bytes in an argument, which must be a tensor without gaps.
fn part(of: &Argument<'_>, what: &str, from: usize, bytes: usize) -> Result<u64> {
    let ArgumentValue::Tensor { address, dtype, extent: Elements::Flat(elements), .. } = of.given() else {
        let message = format!("{what} of a copy is {}, but it must be a tensor without gaps", of.given());
        return Err(Error::new(error::ARGUMENT, message));
    };
    let have = elements.saturating_mul(dtype.bytes() as usize);
    match from.checked_add(bytes).is_some_and(|end| end <= have) {
        true => Ok(address + from as u64),
        false => {
            let message = format!("{bytes} bytes from byte {from} exceed {what} of a copy, which has {have}");
            Err(Error::new(error::SHAPE, message))
        }
    }
}

impl World {
    /// Copies bytes of `source`, which is in any memory of this PE's GPU, to the symmetric `dest`
    /// on a PE that loads and stores reach. On GPUs a copy engine does this. The destination PE can
    /// read the bytes once a later kernel of the same stream has told it that the copy is done. A
    /// simulated PE uses a put, which may arrive in any order, and a quiet.
    ///
    /// # Errors
    /// Fails for a range past the end of a tensor (R0307), for an argument that is not a tensor or,
    /// on the destination side, not symmetric (R0502), for a PE that does not exist (R0303) or that
    /// only puts and gets reach (R0304), or if the CUDA driver rejects the copy (R0103).
    pub fn copy_bytes(
        &self,
        dest: &dyn AsArgument,
        source: &dyn AsArgument,
        copied: Copied,
        stream: &Stream,
    ) -> Result<()> {
        let inner = self.0.on(stream)?;
        let (dest, source) = (dest.argument(stream).flat(), source.argument(stream).flat());
        let Copied { pe, to, from, bytes } = copied;
        let own = part(&dest, "the written side", to, bytes)?;
        let read = part(&source, "the read side", from, bytes)?;
        if !matches!(dest.given(), ArgumentValue::Tensor { symmetric: true, .. }) {
            let message = "the written side of a copy is not symmetric, so no other PE has it";
            return Err(Error::new(error::ARGUMENT, message));
        }
        [&dest, &source].into_iter().filter_map(|side| side.held()).for_each(keep);
        let pe = inner.member(pe)?;
        if let Stream::Simulated(_) = stream {
            inner.library.put(own, read, bytes, pe, false, stream)?;
            return inner.library.quiet(stream);
        }
        let there = if pe == inner.control.rank() { Some(own) } else { inner.library.peer(own, pe) };
        let there = there.ok_or_else(|| {
            let message = format!("the copy engine does not reach the memory of PE {pe}");
            Error::new(error::UNREACHABLE, message).help("use put or get, which work over any transport")
        })?;
        // SAFETY: both tensors have these bytes, as was checked; the caller keeps them, and a graph holds on to them.
        let range = |address| unsafe { Range::new(&inner.device, address, bytes) };
        copy::on_device(range(there), range(read), stream)
    }

    /// Tells a PE that the copies before this one in the stream are complete. The copy engine copies
    /// word `word` of `counts` to the same word of the symmetric `marks` there. A simulated PE adds one
    /// to that word instead, so the word of `counts` must count these copies, from 1 on.
    ///
    /// # Errors
    /// Fails where [`copy_bytes`](World::copy_bytes) fails.
    pub fn copy_count(
        &self,
        marks: &dyn AsArgument,
        counts: &dyn AsArgument,
        (pe, word): (u32, usize),
        stream: &Stream,
    ) -> Result<()> {
        let copied = Copied { pe, to: word * 8, from: word * 8, bytes: 8 };
        let Stream::Simulated(_) = stream else { return self.copy_bytes(marks, counts, copied, stream) };
        let inner = self.0.on(stream)?;
        let marks = marks.argument(stream).flat();
        let mark = part(&marks, "the written side", copied.to, copied.bytes)?;
        inner.library.signal(mark, 1, SignalOp::Add as i32, inner.member(pe)?, stream)
    }
}
