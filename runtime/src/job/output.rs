//! The PEs' output, passed on by their supervisor line by line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// A line longer than this is passed on in pieces, as lines.
const LINE: u64 = 1 << 20;
/// Lines read and not written yet: beyond, PEs wait, as they would for a pipe.
const QUEUE: usize = 256;
/// For output that a process left behind may hold open, or nobody reads, when the job has failed.
const DRAIN: Duration = Duration::from_secs(1);
/// Between looks at whether to go on waiting.
const SLICE: Duration = Duration::from_millis(20);
/// No PE's number.
const ALL: u32 = u32::MAX;

/// Which of a process's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

enum Message {
    Bytes(Stream, u32, Vec<u8>),
    /// Answered by being dropped, when all before it is written.
    Mark {
        _done: Sender<()>,
    },
}

/// Threads that read the PEs' output, and one that writes it.
pub(super) struct Output {
    send: SyncSender<Message>,
    /// Disconnected when that PE's stream has ended and is queued.
    readers: Vec<(u32, Receiver<()>)>,
    /// The PE whose output alone is passed on, or [`ALL`].
    only: Arc<AtomicU32>,
}

impl Output {
    pub fn start() -> io::Result<Output> {
        let (send, receive) = mpsc::sync_channel(QUEUE);
        thread::Builder::new().name("weft-output".into()).spawn(move || write(&receive))?;
        Ok(Output { send, readers: Vec::new(), only: Arc::new(AtomicU32::new(ALL)) })
    }

    /// Passes this stream on until it ends: as it is where it is PE 0's standard output, else with `[PE n] ` before
    /// each line. A line without an end gets one where another PE's follows.
    pub fn pass_on(&mut self, pe: u32, stream: Stream, from: impl Read + Send + 'static) -> io::Result<()> {
        let (done, ended) = mpsc::channel();
        let (send, only) = (self.send.clone(), self.only.clone());
        thread::Builder::new().name("weft-lines".into()).spawn(move || {
            lines(pe, stream, from, &only, &send);
            drop(done);
        })?;
        self.readers.push((pe, ended));
        Ok(())
    }

    /// Drops what other PEs write from now on.
    pub fn only(&self, pe: u32) {
        self.only.store(pe, Ordering::Relaxed);
    }

    /// Waits until all that this PE, whose process has ended, wrote is passed on; not for long.
    pub fn drain(&self, pe: u32) {
        let until = Instant::now() + DRAIN;
        self.flush(|reader| reader == pe, || Instant::now() < until);
    }

    /// Waits until all that was written is passed on; not for long if the job failed, or `stop` says so.
    pub fn finish(&self, failed: bool, stop: impl Fn() -> bool) {
        let until = Instant::now() + DRAIN;
        self.flush(|_| true, || !stop() && (!failed || Instant::now() < until));
    }

    /// A line of the supervisor's own, on standard error.
    pub fn note(&self, line: &str) {
        let until = Instant::now() + DRAIN;
        let bytes = format!("weft: {line}\n").into_bytes();
        self.push(Message::Bytes(Stream::Err, ALL, bytes), || Instant::now() < until);
    }

    fn flush(&self, of: impl Fn(u32) -> bool, wait: impl Fn() -> bool) {
        for (_, ended) in self.readers.iter().filter(|reader| of(reader.0)) {
            until_dropped(ended, &wait);
        }
        let (done, written) = mpsc::channel();
        if self.push(Message::Mark { _done: done }, &wait) {
            until_dropped(&written, &wait);
        }
    }

    fn push(&self, mut message: Message, wait: impl Fn() -> bool) -> bool {
        loop {
            match self.send.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if wait() => message = back,
                Err(_) => return false,
            }
            thread::sleep(SLICE);
        }
    }
}

fn until_dropped(end: &Receiver<()>, wait: impl Fn() -> bool) {
    while end.recv_timeout(SLICE) == Err(RecvTimeoutError::Timeout) && wait() {}
}

fn lines(pe: u32, stream: Stream, from: impl Read, only: &AtomicU32, to: &SyncSender<Message>) {
    let plain = pe == 0 && stream == Stream::Out;
    let prefix = if plain { String::new() } else { format!("[PE {pe}] ") };
    let mut from = BufReader::with_capacity(64 << 10, from);
    loop {
        let mut bytes = prefix.clone().into_bytes();
        match from.by_ref().take(LINE).read_until(b'\n', &mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        if !plain && bytes.last() != Some(&b'\n') {
            bytes.push(b'\n');
        }
        let wanted = only.load(Ordering::Relaxed);
        if (wanted == ALL || wanted == pe) && to.send(Message::Bytes(stream, pe, bytes)).is_err() {
            return;
        }
    }
}

/// Writes what comes. Where nobody reads it any more, it is dropped, and the PEs go on.
fn write(from: &Receiver<Message>) {
    // The PE whose line on standard output has no end yet.
    let mut open = None;
    while let Ok(message) = from.recv() {
        match message {
            Message::Bytes(Stream::Out, pe, bytes) => {
                let mut out = io::stdout();
                let cut: &[u8] = if open.is_some_and(|of| of != pe) { b"\n" } else { b"" };
                let _ = out.write_all(cut).and_then(|()| out.write_all(&bytes)).and_then(|()| out.flush());
                open = (bytes.last() != Some(&b'\n')).then_some(pe);
            }
            Message::Bytes(Stream::Err, _, bytes) => _ = io::stderr().write_all(&bytes),
            Message::Mark { .. } => {}
        }
    }
}
