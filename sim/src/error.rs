//! The errors: [`PtxError`] for text that cannot be read, and [`SimError`] for programs that cannot
//! continue.

use crate::codes;
use crate::names::Named;
use std::fmt;

/// PTX text that the reader rejects, with the location and the expected text.
///
/// The codes are: `P001`, syntax; `P002`, nesting or size beyond the reader's limits; `P003`, an
/// unknown instruction; `P004`, a modifier that no form of the instruction has; `P005`, operands;
/// `P006`, names; `P007`, legal PTX that this simulator does not execute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct PtxError {
    /// The stable code, `P001` and following.
    pub code: codes::Code,
    /// The line of the PTX text, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// A description of what is wrong.
    pub message: String,
    /// A text that says what was expected or what to do. It may be empty.
    pub help: String,
    /// The text of the line, shortened if it is very long.
    pub text: String,
}

impl fmt::Display for PtxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "error[{}]: {}\n  --> PTX line {}, column {}",
            self.code, self.message, self.line, self.column
        )?;
        if !self.text.is_empty() {
            write!(f, "\n   | {}", self.text)?;
        }
        if !self.help.is_empty() {
            write!(f, "\n   = help: {}", self.help)?;
        }
        Ok(())
    }
}

/// A location in the source language, from the PTX's `.file` and `.loc` directives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file name in the `.file` directive.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1, or 0 if it is unknown.
    pub column: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The location in the program at which a [`SimError`] arose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLocation {
    /// The processing element (PE) that ran the instruction.
    pub pe: usize,
    /// The index of the CTA in the grid (`%ctaid`).
    pub cta: [u32; 3],
    /// The index of the thread in the CTA (`%tid`), if one thread is at fault.
    pub thread: Option<[u32; 3]>,
    /// The name of the group of threads that it belongs to, if they have one
    /// ([`Launch::names`](crate::Launch::names)).
    pub role: Option<Named>,
    /// The name of the launched kernel.
    pub kernel: String,
    /// The line of the PTX text, counted from 1.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// The lines in the source language: the innermost first, followed by those at which it was
    /// inlined.
    pub source: Vec<SourceLine>,
}

impl CodeLocation {
    /// Returns `, thread (5, 0, 0)`, or for named threads `, thread 5 of role load`, counted from
    /// their first.
    pub(crate) fn thread_words(&self) -> String {
        match (self.thread, &self.role) {
            (None, None) => String::new(),
            (None, Some(role)) => format!(", role {}", role.name),
            (Some([x, y, z]), None) => format!(", thread ({x}, {y}, {z})"),
            (Some([x, ..]), Some(role)) => format!(", thread {} of role {}", x - role.first, role.name),
        }
    }
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CodeLocation { pe, cta, kernel, ptx_line, ptx_text, source, .. } = self;
        write!(f, "PE {pe}, CTA ({}, {}, {}){} of `{kernel}`", cta[0], cta[1], cta[2], self.thread_words())?;
        for (i, s) in source.iter().enumerate() {
            write!(f, "{} {s}", if i == 0 { "\n  --> " } else { "\n      inlined at" })?;
        }
        write!(f, "\n  --> PTX line {ptx_line}: {ptx_text}")
    }
}

/// A simulation that cannot continue, or an invalid request to the machine.
///
/// The codes are:
/// - `S001`: a bad request (arguments, sizes, names)
/// - `S002`: an invalid address
/// - `S003`: an access out of bounds
/// - `S004`: a misaligned access
/// - `S005`: a misused multicast address
/// - `S006`: arithmetic (division by zero)
/// - `S007`: barrier misuse or divergence
/// - `S008`: a deadlock
/// - `S009`: the step limit
/// - `S010`: a trap
/// - `S011`: operands with undefined behaviour (lane masks, barrier numbers)
/// - `S012`: memory limits
/// - `S013`: misused NVSHMEM functions (a missing PE or team, an address that is not symmetric,
///   arguments that differ between threads, calls that differ between PEs)
/// - `S014`: misused mbarriers and asynchronous operations (a missing or overwritten mbarrier, more
///   arrivals or bytes than its phase expects, sizes, shared memory that ends while it is used)
/// - `S015`: CTAs that wait for CTAs of a grid larger than the number that is resident
/// - `S016`: a failed assertion
///
/// An error that does not stop the program is a [`Finding`](crate::Finding), with codes from `S030`
/// on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct SimError {
    /// The stable code, `S001` and following.
    pub code: codes::Code,
    /// A description of what went wrong.
    pub message: String,
    /// A text that says what was expected or what to do. It may be empty.
    pub help: String,
    /// The location, or `None` for requests from the host.
    pub at: Option<Box<CodeLocation>>,
    /// Further lines, such as the waits of all threads in a deadlock.
    pub notes: Vec<String>,
    /// The text that kernels printed until then.
    pub printed: String,
}

impl SimError {
    pub(crate) fn new(code: codes::Code, message: impl Into<String>, help: impl Into<String>) -> Self {
        SimError {
            code,
            message: message.into(),
            help: help.into(),
            at: None,
            notes: Vec::new(),
            printed: String::new(),
        }
    }

    /// Makes an error for a request of the host that the machine rejects ([`codes::BAD_REQUEST`]).
    pub fn request(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(codes::BAD_REQUEST, message, help)
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(at) = &self.at {
            write!(f, "\n  at {at}")?;
        }
        for note in &self.notes {
            write!(f, "\n  = {note}")?;
        }
        if !self.help.is_empty() {
            write!(f, "\n  = help: {}", self.help)?;
        }
        Ok(())
    }
}
