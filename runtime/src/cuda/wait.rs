//! Waits for the GPU that have a limit, since work on the GPU may wait for PEs that never arrive.

use super::{Device, Stream, error};
use crate::error::{Error, NOT_DONE, Result};
use crate::interrupt::{self, PAUSE};
use crate::{job, watch};
use cudarc::driver::sys::{self, CUresult};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Whether a wait ended before the GPU was done. After that, nothing of the GPU can be freed in
/// order.
static STUCK: AtomicBool = AtomicBool::new(false);

/// The number of waits for the GPU in progress.
static WAITS: AtomicU32 = AtomicU32::new(0);

/// A wait for the GPU in progress.
struct Waiting;

impl Waiting {
    fn begin() -> Waiting {
        WAITS.fetch_add(1, Ordering::Relaxed);
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a thread waits here for the GPU. It reports if its wait exceeds the limit.
pub(crate) fn is_waiting() -> bool {
    WAITS.load(Ordering::Relaxed) > 0
}

/// Makes every later wait for the GPU fail.
pub(crate) fn give_up() {
    STUCK.store(true, Ordering::SeqCst);
}

/// Returns a flag that is set when all present work on the GPU is done, or if that cannot be found
/// out.
#[allow(unsafe_code, reason = "FFI")]
pub(crate) fn drained(device: &Device) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let (device, flag) = (device.clone(), done.clone());
    let wait = move || {
        let mut relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // The wait must not end the capture of a stream by another thread.
        // SAFETY: the pointer is to a local variable.
        let exempt = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut relaxed) }.result();
        if exempt.is_ok() && device.bind().is_ok() {
            let _ = device.synchronize();
        }
        flag.store(true, Ordering::SeqCst);
    };
    if std::thread::Builder::new().name("weft-wait".into()).spawn(wait).is_err() {
        done.store(true, Ordering::SeqCst);
    }
    done
}

/// The time for which a stream is polled without a pause.
const EAGER: Duration = Duration::from_micros(200);

/// The limit in seconds from `WEFT_TIMEOUT`, which also applies to exchanges of the job.
fn bound() -> Duration {
    static BOUND: OnceLock<Duration> = OnceLock::new();
    *BOUND.get_or_init(|| crate::job::Options::from_env().unwrap_or_default().timeout)
}

fn not_done(what: &str) -> Error {
    give_up();
    let mut message = format!("{what} is not done after {} s", bound().as_secs_f32());
    let waits = job::report();
    if !waits.is_empty() {
        message.push_str(&format!(":\n{waits}"));
    }
    Error::new(NOT_DONE, message).help(
        "does every PE make the calls that it waits for, with the same sizes?\n\
         WEFT_TIMEOUT sets the bound in seconds, for work that takes longer",
    )
}

/// Whether a wait that began then gives up. If `WEFT_WATCH` requests only reports, this function
/// prints one and the wait continues.
fn gives_up(what: &str, began: &mut Instant) -> bool {
    if began.elapsed() < bound() {
        return false;
    }
    if !watch::goes_on() {
        return true;
    }
    eprintln!("weft: {what} is not done after {} s:\n{}", bound().as_secs_f32(), job::report());
    *began = Instant::now();
    false
}

/// Checks that no earlier wait for the GPU has ended without success.
///
/// # Errors
/// Fails if the GPU is not done within the limit (R0402).
pub(crate) fn not_stuck() -> Result<()> {
    match STUCK.load(Ordering::SeqCst) {
        false => Ok(()),
        true => Err(Error::new(
            NOT_DONE,
            "an earlier wait for the GPU timed out, so the process does not wait for it again",
        )),
    }
}

/// Waits until a stream has done all its work.
///
/// # Errors
/// Fails if the work takes longer than the limit (R0402), or if it failed (R0103).
#[allow(unsafe_code, reason = "FFI")]
pub fn wait_for(stream: &Stream) -> Result<()> {
    let stream = match stream {
        Stream::Gpu(stream) => stream,
        Stream::Simulated(stream) => return stream.synchronize(),
    };
    Stream::bind(stream)?;
    // SAFETY: the stream is alive.
    poll("the stream", "cuStreamQuery", || unsafe { sys::cuStreamQuery(stream.cu_stream()) })
}

/// Polls until the answer is not "not ready", at most for the limit.
pub(super) fn poll(what: &str, call: &str, ask: impl Fn() -> CUresult) -> Result<()> {
    let _waiting = Waiting::begin();
    let (mut began, mut asked) = (Instant::now(), PAUSE);
    loop {
        match ask() {
            CUresult::CUDA_SUCCESS => return Ok(()),
            CUresult::CUDA_ERROR_NOT_READY => {}
            other => return other.result().map_err(|e| error(call, e)),
        }
        if gives_up(what, &mut began) {
            return Err(not_done(what));
        }
        match began.elapsed() {
            waited if waited >= asked => {
                interrupt::go_on(what)?;
                asked = waited + PAUSE;
            }
            waited if waited > EAGER => std::thread::sleep(Duration::from_micros(50)),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Returns the result of the thread that waits for the GPU, within the limit.
fn ended(end: &Receiver<Result<()>>) -> Result<()> {
    let _waiting = Waiting::begin();
    let mut began = Instant::now();
    loop {
        match end.recv_timeout(PAUSE.min(bound())) {
            Ok(done) => return done,
            Err(_) if gives_up("the GPU", &mut began) => return Err(not_done("the GPU")),
            Err(_) => interrupt::go_on("the GPU")?,
        }
    }
}

impl Device {
    /// Waits for all work on the GPU, at most for the bound of waits.
    ///
    /// # Errors
    /// Fails if the work takes longer (R0402), or if it failed (R0103).
    pub fn wait(&self) -> Result<()> {
        if let Some(pe) = self.pe() {
            return pe.wait_for_device();
        }
        not_stuck()?;
        let (done, end) = channel();
        let device = self.clone();
        // The driver has no wait with a limit for a whole context. If the wait does not end,
        // neither does the thread.
        let spawned = std::thread::Builder::new().name("weft-wait".into()).spawn(move || {
            // After the limit, the receiver is gone.
            let _ = done.send(device.bind().and_then(|()| device.synchronize()));
        });
        match spawned {
            Ok(_) => ended(&end),
            Err(_) => self.synchronize(),
        }?;
        watch::all_ended(self);
        Ok(())
    }
}
