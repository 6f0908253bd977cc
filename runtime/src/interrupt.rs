//! Waits that a program inside an interpreter can end: Ctrl-C is known to the interpreter first.

use crate::error::{Error, INTERRUPTED, Result};
use std::sync::OnceLock;
use std::time::Duration;

/// How often waits ask.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

static ASK: OnceLock<fn() -> bool> = OnceLock::new();

/// Lets waits on the host ask, every 50 ms and in the thread that waits, whether they are to end. They then end with
/// `R0405`. The first call counts.
pub fn on_interrupt(ask: fn() -> bool) {
    let _ = ASK.set(ask);
}

/// Whether the wait goes on.
///
/// # Errors
/// Fails if the program was told to end (R0405).
pub(crate) fn go_on(what: &str) -> Result<()> {
    match ASK.get().is_some_and(|ask| ask()) {
        true => Err(Error::new(INTERRUPTED, format!("the wait for {what} was interrupted"))),
        false => Ok(()),
    }
}
