//! The output of the PEs, which their supervisor passes on line by line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// The length of the longest line; a longer one is passed on in several lines.
const LINE: u64 = 1 << 20;
/// The number of lines that are read and not yet written. Beyond it, PEs wait, as they would for a
/// pipe.
const QUEUE: usize = 256;
/// The time limit, after the job has failed, for output of a pipe that a remaining process holds
/// open or that is not read.
const DRAIN: Duration = Duration::from_secs(1);
/// The pause between checks whether to continue waiting.
const SLICE: Duration = Duration::from_millis(20);
/// A number that no PE has.
const ALL: u32 = u32::MAX;

/// The output streams of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

enum Message {
    Bytes(Stream, u32, Vec<u8>),
    /// A marker, which is dropped when everything before it is written.
    Mark {
        _done: Sender<()>,
    },
}

/// The threads that read the PEs' output, and one that writes it.
pub(super) struct Output {
    send: SyncSender<Message>,
    /// Receivers that are disconnected when that PE's stream has ended and is queued.
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

    /// Passes this stream on until it ends. PE 0's standard output stays unchanged, and all other
    /// lines begin with `[PE n] `. A line without an end gets one before a line of another PE.
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

    /// Waits until all output of this PE, whose process has ended, is passed on, at most for a
    /// short time.
    pub fn drain(&self, pe: u32) {
        let until = Instant::now() + DRAIN;
        self.flush(|reader| reader == pe, || Instant::now() < until);
    }

    /// Waits until all output is passed on. The time is limited if the job failed, or if `stop`
    /// returns true.
    pub fn finish(&self, failed: bool, stop: impl Fn() -> bool) {
        let until = Instant::now() + DRAIN;
        self.flush(|_| true, || !stop() && (!failed || Instant::now() < until));
    }

    /// Prints a line of the supervisor itself on standard error.
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

/// Writes the queued lines. If the output is closed, they are dropped and the PEs continue.
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
