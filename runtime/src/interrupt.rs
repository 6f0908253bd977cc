//! Waits that a program inside an interpreter can end, since Ctrl-C reaches the interpreter first.

use crate::error::{Error, INTERRUPTED, Result};
use std::sync::OnceLock;
use std::time::Duration;

/// The interval at which waits ask.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

static ASK: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets a function that waits on the host call every 50 ms, in the waiting thread, to ask whether
/// to end. They then end with `R0405`. Only the first call has an effect.
pub fn on_interrupt(ask: fn() -> bool) {
    let _ = ASK.set(ask);
}

/// Checks whether the wait may continue.
///
/// # Errors
/// Fails if the program was told to end (R0405).
pub(crate) fn go_on(what: &str) -> Result<()> {
    match ASK.get().is_some_and(|ask| ask()) {
        true => Err(Error::new(INTERRUPTED, format!("the wait for {what} was interrupted"))),
        false => Ok(()),
    }
}
