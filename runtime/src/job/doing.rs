//! What all PEs of a job do at the moment: a PE whose wait exceeds its bound asks the others.

use super::control::{Control, lock};
use super::wire::{Doing, Request};
use crate::watch;
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a PE waits for the others' answers. A PE that is alive answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// The job of this process that was entered last.
static JOB: Mutex<Weak<Control>> = Mutex::new(Weak::new());

/// From now on, reports of this process are about all PEs of the job.
pub(super) fn entered(control: Weak<Control>) {
    *JOB.lock().unwrap_or_else(PoisonError::into_inner) = control;
}

/// What this PE does: the waits of its kernels, and what its host waits for in the job.
pub(super) fn here(host: Option<&str>) -> Doing {
    let (waits, mut lines) = watch::report();
    match host {
        Some(what) => lines.push(format!("its host waits in `{what}` for the other PEs")),
        None if !waits => lines.push("its host waits in no step with other PEs".into()),
        None => {}
    }
    Doing { waits, lines }
}

/// What the PEs of the job do, a line each, and which of them the others wait for. Without a job it is about this
/// process alone.
pub(crate) fn report() -> String {
    let control = JOB.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    match control.filter(|c| c.size() > 1) {
        Some(control) => words(&control.ask()),
        None => watch::report().1.join("\n"),
    }
}

/// The answers in words, from GPUs and from simulated PEs. No answer stands for a PE that did not give one in time.
pub(crate) fn words(answers: &[Option<Doing>]) -> String {
    let any = answers.iter().flatten().any(|a| a.waits);
    let mut lines = Vec::new();
    for (pe, answer) in answers.iter().enumerate() {
        match answer {
            Some(answer) => lines.extend(answer.lines.iter().map(|line| format!("PE {pe}: {line}"))),
            None => lines.push(format!("PE {pe}: it does not say what it does")),
        }
    }
    let absent = answers.iter().enumerate().filter(|(_, a)| a.as_ref().is_none_or(|a| !a.waits));
    let absent: Vec<u32> = absent.filter_map(|(pe, _)| u32::try_from(pe).ok()).collect();
    if any && !absent.is_empty() {
        lines.push(format!(
            "the threads that wait may wait for {}, where no thread does",
            super::pes(&absent)
        ));
    }
    lines.join("\n")
}

impl Control {
    /// What kernels of the job wait for, as the end of an error's message; nothing if no wait has been reported.
    pub(super) fn kernel_waits(&self) -> String {
        let answers = self.ask();
        let any = answers.iter().flatten().any(|a| a.waits);
        if any { format!("\n{}", words(&answers)) } else { String::new() }
    }

    /// Asks all PEs what they do, and waits for their answers for a moment. This PE needs no connection for its own.
    pub(super) fn ask(&self) -> Vec<Option<Doing>> {
        let host = lock(&self.shared.state).open_call();
        let own = here(host.as_deref());
        let asked = (0..self.size()).map(|pe| (pe == self.rank()).then(|| own.clone()));
        lock(&self.shared.state).doing = asked.collect();
        if self.shared.link.send(&Request::Ask).is_ok() {
            let state = lock(&self.shared.state);
            let open = |state: &mut super::control::State| {
                state.died.is_none() && !state.ended && state.doing.iter().any(Option::is_none)
            };
            drop(self.shared.changed.wait_timeout_while(state, PATIENCE, open));
        }
        std::mem::take(&mut lock(&self.shared.state).doing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pe_where_nothing_waits_is_named() {
        let says = |waits, line: &str| Some(Doing { waits, lines: vec![line.into()] });
        let text = words(&[says(true, "waits for `x[3]`"), says(false, "nothing"), None]);
        assert_eq!(
            text,
            "PE 0: waits for `x[3]`\nPE 1: nothing\nPE 2: it does not say what it does\n\
             the threads that wait may wait for PEs 1, 2, where no thread does"
        );
        let text = words(&[says(true, "a"), says(true, "b")]);
        assert_eq!(text, "PE 0: a\nPE 1: b", "each waits, so none is absent");
    }
}
