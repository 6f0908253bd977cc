//! A process that answers questions: each question is a line of JSON on its standard input, and
//! each answer is a line on its standard output. Its standard error is kept for the message if it
//! fails.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The greatest length of an answer in bytes.
const LONGEST: u64 = 1 << 20;
/// The number of lines of standard error that are kept.
const KEPT: usize = 8;
/// The time within which a process must end after its output has ended.
const END: Duration = Duration::from_secs(1);

/// The process that answers questions. It is killed when this value is dropped; its standard input
/// ends when this process ends.
pub struct Child {
    name: String,
    process: std::process::Child,
    questions: ChildStdin,
    answers: Receiver<String>,
    said: Arc<Mutex<VecDeque<String>>>,
    /// The thread that reads the process's standard error until it ends.
    ear: JoinHandle<()>,
}

/// An answer, or why there is none.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Answer<A> {
    Failed { error: String },
    Good(A),
}

impl Child {
    /// Starts the process; `name` is used in messages.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Child, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|e| format!("{name}: cannot start {}: {e}", command.get_program().to_string_lossy()))?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(questions), Some(output), Some(errors)) = pipes else {
            return Err(format!("{name}: cannot open pipes to the process"));
        };
        let (tell, answers) = sync_channel(1);
        thread::spawn(move || lines(output, |line| tell.send(line).is_ok()));
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let keep = said.clone();
        let ear = thread::spawn(move || {
            lines(errors, |line| {
                let Ok(mut said) = keep.lock() else { return false };
                said.push_back(line);
                let surplus = said.len().saturating_sub(KEPT);
                said.drain(..surplus);
                true
            });
        });
        Ok(Child { name: name.into(), process, questions, answers, said, ear })
    }

    /// Sends a question, and returns the answer.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended, with the last lines of its standard error, or if it does not
    /// answer in that time, reports an error, or sends an answer that cannot be read.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        within: Duration,
    ) -> Result<A, String> {
        let mut line =
            serde_json::to_string(question).map_err(|e| format!("{}: no question: {e}", self.name))?;
        line.push('\n');
        // If this fails, the process has ended, and reading the answer reports that.
        let _ = self.questions.write_all(line.as_bytes()).and_then(|()| self.questions.flush());
        let answer = match self.answers.recv_timeout(within) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {
                let asked = line.trim_end();
                let message = format!("{}: no answer to {asked} within {} s", self.name, within.as_secs());
                return Err(message + &self.last_words());
            }
        };
        match serde_json::from_str(&answer) {
            Ok(Answer::Good(answer)) => Ok(answer),
            Ok(Answer::Failed { error }) => Err(format!("{}: {error}{}", self.name, self.last_words())),
            Err(_) => {
                let start: String = answer.chars().take(80).collect();
                Err(format!("{}: `{start}` is not an answer to {}", self.name, line.trim_end()))
            }
        }
    }

    /// How the process, whose output has ended, ended.
    fn ended(&mut self) -> String {
        let began = Instant::now();
        let status = loop {
            let status = self.process.try_wait().ok().flatten();
            if began.elapsed() > END || status.is_some() && self.ear.is_finished() {
                break status.map_or("the process closed its output".into(), |s| s.to_string());
            }
            thread::sleep(Duration::from_millis(2));
        };
        format!("{} ended ({status}){}", self.name, self.last_words())
    }

    /// The last lines of standard error, as the end of a sentence.
    fn last_words(&self) -> String {
        let said = self.said.lock().map(|said| Vec::from(said.clone())).unwrap_or_default();
        if said.is_empty() { String::new() } else { format!("; its last output:\n{}", said.join("\n")) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads lines until they end, or until `wanted` returns false.
fn lines(pipe: impl Read, mut wanted: impl FnMut(String) -> bool) {
    let mut pipe = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        match pipe.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 && wanted(String::from_utf8_lossy(&line).trim_end().into()) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shell(script: &str) -> Child {
        Child::start("the peer", Command::new("sh").args(["-c", script])).unwrap()
    }

    fn ask(child: &mut Child, seconds: f64) -> Result<Value, String> {
        child.ask(&json!({"ask": "time"}), Duration::from_secs_f64(seconds))
    }

    #[test]
    fn questions_are_answered_in_turn() {
        let mut child =
            shell(r#"while read -r line; do n=$((n + 1)); echo "{\"n\": $n, \"was\": $line}"; done"#);
        for n in 1..=3 {
            assert_eq!(ask(&mut child, 5.0).unwrap(), json!({"n": n, "was": {"ask": "time"}}));
        }
    }

    #[test]
    fn a_death_is_told_with_the_last_words() {
        let mut child = shell("read line; for i in 1 2 3 4 5 6 7 8 9; do echo word $i >&2; done; exit 3");
        let said = ask(&mut child, 5.0).unwrap_err();
        assert!(said.starts_with("the peer ended (exit status: 3)"), "{said}");
        assert!(said.contains("; its last output:\nword 2\n") && said.ends_with("word 9"), "{said}");
        // It does not answer later questions either.
        assert!(ask(&mut child, 5.0).unwrap_err().contains("ended"));
    }

    #[test]
    fn silence_failures_and_nonsense() {
        let began = Instant::now();
        let said = ask(&mut shell("sleep 60"), 0.05).unwrap_err();
        assert!(said.contains(r#"no answer to {"ask":"time"} within 0 s"#), "{said}");
        assert!(began.elapsed() < Duration::from_secs(10), "it was waited for");
        let said = ask(&mut shell(r#"echo '{"error": "out of memory"}'; sleep 60"#), 5.0).unwrap_err();
        assert_eq!(said, "the peer: out of memory");
        let said = ask(&mut shell("echo 12 apples; sleep 60"), 5.0).unwrap_err();
        assert_eq!(said, r#"the peer: `12 apples` is not an answer to {"ask":"time"}"#);
        // A line that never ends is cut off.
        let said = ask(&mut shell("head -c 3000000 /dev/zero | tr '\\0' x; sleep 60"), 5.0).unwrap_err();
        assert!(said.len() < 300 && said.contains("xxx` is not an answer"), "{said}");
        let none = Child::start("the peer", &mut Command::new("/nowhere/python3")).err().unwrap();
        assert!(none.starts_with("the peer: cannot start /nowhere/python3: No such file"), "{none}");
    }

    #[test]
    fn it_ends_with_its_owner() {
        let child = shell("echo $$ >&2; sleep 60");
        let began = Instant::now();
        while child.last_words().is_empty() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(1));
        }
        let process = format!("/proc/{}", child.process.id());
        assert!(std::path::Path::new(&process).exists());
        drop(child);
        assert!(!std::path::Path::new(&process).exists());
    }
}
