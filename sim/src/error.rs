//! What goes wrong: [`PtxError`] for text that cannot be read, [`SimError`] for programs that cannot go on.

use crate::codes;
use crate::names::Named;
use std::fmt;

/// PTX text that the reader rejects, with the place and what would have been right.
///
/// Codes: `P001` syntax, `P002` nesting or size beyond the reader's limits, `P003` unknown instruction,
/// `P004` a modifier no form of the instruction has, `P005` operands, `P006` names, `P007` legal PTX that
/// this simulator does not carry out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct PtxError {
    /// The stable code, `P001` and following.
    pub code: codes::Code,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// A description of what is wrong.
    pub message: String,
    /// A text that says what was expected or what to do. It may be empty.
    pub help: String,
    /// The line itself, shortened if it is very long.
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

/// A place in the source language, from the PTX's `.file` and `.loc` directives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// File name as `.file` gives it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The place in the program at which a [`SimError`] arose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLocation {
    /// The processing element (PE) that ran the instruction.
    pub pe: usize,
    /// CTA in the grid (`%ctaid`).
    pub cta: [u32; 3],
    /// Thread in the CTA (`%tid`), if one thread is at fault.
    pub thread: Option<[u32; 3]>,
    /// The name of the threads that it belongs to, if they have one ([`Launch::names`](crate::Launch::names)).
    pub role: Option<Named>,
    /// Kernel that was launched.
    pub kernel: String,
    /// Line of the PTX text, from 1.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// Line in the source language, innermost first, followed by the lines it was inlined at.
    pub source: Vec<SourceLine>,
}

impl CodeLocation {
    /// `, thread (5, 0, 0)`; of threads that have a name, `, thread 5 of role load`, counted from their first.
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

/// A simulation that cannot go on, or a request to the machine that makes no sense.
///
/// Codes: `S001` bad request (arguments, sizes, names), `S002` invalid address, `S003` out of bounds,
/// `S004` misaligned, `S005` multicast address misused, `S006` arithmetic (division by zero), `S007` barrier
/// misuse or divergence, `S008` deadlock, `S009` step limit, `S010` trap, `S011` operands with
/// undefined behaviour (lane masks, barrier numbers), `S012` memory limits, `S013` NVSHMEM functions misused
/// (no such PE or team, not symmetric, arguments that differ between threads, calls that differ between PEs), `S014` mbarriers
/// and asynchronous operations misused (no mbarrier, one overwritten, more arrivals or bytes than its phase expects, sizes,
/// shared memory that ends while it is used), `S015` CTAs that wait for others of a grid larger than what is resident,
/// `S016` an assertion that does not hold.
/// What is wrong and stops nobody is a [`Finding`](crate::Finding), with codes from `S030` on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct SimError {
    /// The stable code, `S001` and following.
    pub code: codes::Code,
    /// A description of what went wrong.
    pub message: String,
    /// A text that says what was expected or what to do. It may be empty.
    pub help: String,
    /// Where; `None` for requests from the host.
    pub at: Option<Box<CodeLocation>>,
    /// Further lines, for example who waits for what in a deadlock.
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

    /// An error about a request of the host that the machine refuses ([`codes::BAD_REQUEST`]).
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
