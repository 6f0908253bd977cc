//! The current state of all PEs of a job. A PE whose wait exceeds its limit asks the others.

use super::control::{Control, lock};
use super::wire::{Doing, Request};
use crate::watch;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The time that a PE waits for the others' answers. A living PE answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// The job of this process that was entered last.
static JOB: Mutex<Weak<Control>> = Mutex::new(Weak::new());

/// Makes this process report about all PEs of the job from now on.
pub(super) fn entered(control: Weak<Control>) {
    *JOB.lock().unwrap_or_else(PoisonError::into_inner) = control;
}

/// The job that was entered last, if it still exists.
fn current() -> Option<Arc<Control>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
}

/// The rank of this PE in the job, or 0 without a job.
pub(crate) fn rank() -> u32 {
    current().map_or(0, |control| control.rank())
}

/// Whether this process was in a job that is over.
pub(crate) fn is_over() -> bool {
    current().is_some_and(|control| control.is_over())
}

/// Ends the job for this reason, if there is one.
pub(crate) fn fail(why: &str) {
    if let Some(control) = current() {
        control.fail(why);
    }
}

/// The state of this PE: the waits of its kernels, and the wait of its host in the job.
pub(super) fn here(host: Option<&str>) -> Doing {
    let (waits, mut lines) = watch::report();
    match host {
        Some(what) => lines.push(format!("its host waits in `{what}` for the other PEs")),
        None if !waits => lines.push("its host does not wait for other PEs".into()),
        None => {}
    }
    Doing { waits, lines }
}

/// Describes the state of the job's PEs, one on each line, and which of them the others may wait
/// for. Without a job it describes only this process.
pub(crate) fn report() -> String {
    match current().filter(|c| c.size() > 1) {
        Some(control) => words(&control.ask()),
        None => watch::report().1.join("\n"),
    }
}

/// Formats the answers, which come from GPUs or from simulated PEs. A missing answer means that the
/// PE did not answer in time.
pub(crate) fn words(answers: &[Option<Doing>]) -> String {
    let any = answers.iter().flatten().any(|a| a.waits);
    let mut lines = Vec::new();
    for (pe, answer) in answers.iter().enumerate() {
        match answer {
            Some(answer) => lines.extend(answer.lines.iter().map(|line| format!("PE {pe}: {line}"))),
            None => lines.push(format!("PE {pe}: it did not report its state")),
        }
    }
    let absent = answers.iter().enumerate().filter(|(_, a)| a.as_ref().is_none_or(|a| !a.waits));
    let absent: Vec<u32> = absent.filter_map(|(pe, _)| u32::try_from(pe).ok()).collect();
    if any && !absent.is_empty() {
        lines.push(format!(
            "the waiting threads may depend on {}, where no thread waits",
            super::pes(&absent)
        ));
    }
    lines.join("\n")
}

impl Control {
    /// The waits of the job's kernels, as the end of an error's message, or nothing if no wait has
    /// been reported. All PEs run one program, so none is asked if this one watches no kernel.
    pub(super) fn kernel_waits(&self) -> String {
        if !watch::is_watching() {
            return String::new();
        }
        let answers = self.ask();
        let any = answers.iter().flatten().any(|a| a.waits);
        if any { format!("\n{}", words(&answers)) } else { String::new() }
    }

    /// Asks all PEs for their state, and waits briefly for their answers. This PE needs no connection for its own.
    pub(super) fn ask(&self) -> Vec<Option<Doing>> {
        let _alone = lock(&self.shared.asking);
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
            "PE 0: waits for `x[3]`\nPE 1: nothing\nPE 2: it did not report its state\n\
             the waiting threads may depend on PEs 1, 2, where no thread waits"
        );
        let text = words(&[says(true, "a"), says(true, "b")]);
        assert_eq!(text, "PE 0: a\nPE 1: b", "each waits, so none is absent");
    }
}
