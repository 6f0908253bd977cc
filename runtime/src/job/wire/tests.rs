use proptest::prelude::*;

use super::*;

fn requests() -> impl Strategy<Value = Request> {
    let call = (
        any::<u64>(),
        prop::collection::vec(any::<u32>(), 0..9),
        ".*",
        prop::collection::vec(any::<u8>(), 0..300),
        any::<bool>(),
    );
    prop_oneof![
        call.prop_map(|(id, members, what, payload, patient)| {
            Request::Call(Call { id, members, what, payload, patient })
        }),
        ".*".prop_map(Request::Fail),
        Just(Request::Goodbye),
        Just(Request::Ask),
        (any::<u32>(), any::<bool>(), prop::collection::vec(".*", 0..3))
            .prop_map(|(to, waits, lines)| Request::Tell { to, doing: Doing { waits, lines } }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(messages in prop::collection::vec(requests(), 0..5)) {
        let bytes: Vec<u8> = messages.iter().flat_map(|m| frame(m).unwrap()).collect();
        let mut stream = bytes.as_slice();
        for message in messages {
            prop_assert_eq!(read::<Request>(&mut stream, MAX_FRAME).unwrap(), Some(message));
        }
        prop_assert_eq!(read::<Request>(&mut stream, MAX_FRAME).unwrap(), None);
    }

    /// A frame cut short is an error, and no message.
    #[test]
    fn a_cut_frame_is_an_error(message in requests(), cut in any::<prop::sample::Index>()) {
        let bytes = frame(&message).unwrap();
        let cut = 1 + cut.index(bytes.len() - 1);
        prop_assert!(read::<Request>(&mut &bytes[..cut], MAX_FRAME).is_err());
    }

    /// Whatever comes: a message that is written the same, the end, or an error; no panic.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..80), honest in any::<bool>()) {
        if honest && bytes.len() >= 4 {
            let body = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&body.to_le_bytes());
        }
        let mut stream = bytes.as_slice();
        match read::<Request>(&mut stream, MAX_FRAME) {
            Ok(Some(message)) => {
                prop_assert_eq!(read::<Request>(&mut frame(&message).unwrap().as_slice(), MAX_FRAME).unwrap(), Some(message));
            }
            Ok(None) => prop_assert!(bytes.is_empty()),
            Err(_) => {}
        }
        let _ = read::<Hello>(&mut bytes.as_slice(), MAX_HELLO);
        let _ = read::<Reply>(&mut bytes.as_slice(), MAX_FRAME);
    }
}

/// Counts what is asked of it, and has no end.
struct Endless(usize);

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        buffer.fill(0xff);
        self.0 += buffer.len();
        Ok(buffer.len())
    }
}

#[test]
fn a_length_over_the_limit_is_refused_unread() {
    let mut stream = Endless(0);
    let error = read::<Hello>(&mut stream, MAX_HELLO).unwrap_err();
    assert_eq!(error.to_string(), "a message has 4294967295 bytes, but the limit is 4096");
    assert_eq!(stream.0, 4);
}

#[test]
fn a_message_over_the_limit_is_not_sent() {
    let big = Request::Fail("x".repeat(MAX_FRAME));
    assert_eq!(frame(&big).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// A length of 64 MiB with nothing behind it allocates nothing like it.
#[test]
fn what_is_announced_is_not_allocated() {
    let mut bytes = (MAX_FRAME as u32).to_le_bytes().to_vec();
    bytes.push(0);
    let error = read::<Request>(&mut bytes.as_slice(), MAX_FRAME).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    // A list that says it has 2^32 entries.
    let body = [0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let bytes = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
    assert!(read::<Request>(&mut bytes.as_slice(), MAX_FRAME).is_err());
}
