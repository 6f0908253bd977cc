//! The protocol between a PE and the hub: frames of a length (4 bytes, little endian) and a body
//! (postcard).

use std::io::{self, Read};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::secret::Bytes;

/// The largest size of a body in bytes.
pub(super) const MAX_FRAME: usize = 64 << 20;
/// The largest size of a [`Hello`] or a [`Claim`] in bytes, which limits the memory that a foreign
/// process can make the hub use.
pub(super) const MAX_HELLO: usize = 4 << 10;
/// The first text on a connection. The hub rejects PEs of another version.
pub(super) const MAGIC: &str = concat!("warpweft job 3 ", env!("CARGO_PKG_VERSION"));

/// The first frame of a PE.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(super) struct Hello {
    pub magic: String,
    /// A number that is used once.
    pub once: Bytes,
}

/// The second frame of a PE: its identity, and a [proof](super::secret) that it belongs to the job.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(super) struct Claim {
    pub rank: u32,
    pub size: u32,
    pub proof: Bytes,
}

/// A later frame of a PE.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(super) enum Request {
    Call(Call),
    Fail(String),
    Goodbye,
    /// A question about the state of every PE.
    Ask,
    /// The answer to a PE that asked.
    Tell {
        to: u32,
        doing: Doing,
    },
}

/// A PE's part in an exchange.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(super) struct Call {
    /// The PE's own number for the call.
    pub id: u64,
    pub members: Vec<u32>,
    pub what: String,
    pub payload: Vec<u8>,
    /// Whether the PE waits for the others without a limit.
    pub patient: bool,
}

/// The state of a PE.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Doing {
    /// Whether a thread of its kernels has reported a wait.
    pub waits: bool,
    /// The answer as lines of text.
    pub lines: Vec<String>,
}

/// A frame of the hub.
#[derive(Serialize, serde::Deserialize, Clone, PartialEq, Debug)]
pub(super) enum Reply {
    /// The answer to a [`Hello`]: the hub's own number that is used once.
    Challenge(Bytes),
    /// The admission of the PE, with a proof that this is the job's hub.
    Welcome(Bytes),
    Refused(String),
    Done {
        id: u64,
        payloads: Arc<Vec<Vec<u8>>>,
    },
    Failed {
        id: u64,
        message: String,
    },
    Died {
        pe: u32,
        reason: String,
    },
    /// A PE's question about the state of every PE.
    Asked {
        by: u32,
    },
    /// The state of a PE.
    Told {
        pe: u32,
        doing: Doing,
    },
    /// The hub ends in an orderly way.
    Closed,
}

/// Encodes a frame. Fails if the body is larger than [`MAX_FRAME`] bytes.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_extend(message, vec![0; 4]).map_err(malformed)?;
    let body = bytes.len() - 4;
    if body > MAX_FRAME {
        return Err(malformed(format!("a message has {body} bytes, but the limit is {MAX_FRAME}")));
    }
    let mut bytes = bytes;
    bytes[..4].copy_from_slice(&(body as u32).to_le_bytes());
    Ok(bytes)
}

/// Reads the next message; none if the stream ends before one. Never allocates more than the
/// received bytes, or than `limit` bytes.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read, limit: usize) -> io::Result<Option<T>> {
    let mut length = Vec::with_capacity(4);
    from.by_ref().take(4).read_to_end(&mut length)?;
    let Ok(length) = <[u8; 4]>::try_from(length.as_slice()) else {
        return if length.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
    };
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(malformed(format!("a message has {length} bytes, but the limit is {limit}")));
    }
    let mut body = Vec::new();
    from.by_ref().take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&body).map_err(malformed)? {
        (message, []) => Ok(Some(message)),
        (_, rest) => Err(malformed(format!("there are {} bytes after a message", rest.len()))),
    }
}

/// Reads bytes as frames of each kind, and checks that a parsed frame is written in the same form.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    fn each<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(mut stream: &[u8], limit: usize) {
        while let Ok(Some(message)) = read::<T>(&mut stream, limit) {
            let again = frame(&message).expect("a message that was read fits a frame");
            let written = read::<T>(&mut again.as_slice(), MAX_FRAME).expect("its own frame");
            assert_eq!(written, Some(message));
        }
    }
    each::<Hello>(bytes, MAX_HELLO);
    each::<Claim>(bytes, MAX_HELLO);
    each::<Request>(bytes, MAX_FRAME);
    each::<Reply>(bytes, MAX_FRAME);
}

fn malformed(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

#[cfg(test)]
mod tests;
