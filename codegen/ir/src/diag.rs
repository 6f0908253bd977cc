//! Diagnostics as data: what is wrong, where, what was expected, what to do. Rendering is `weft-lang`'s.

use std::fmt;

/// A range of bytes of one source file. `file` is an index into the source map. [`Span::NONE`] marks things
/// without source text (from the builder API, or generated code).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// Index of the source file.
    pub file: u32,
    /// The offset of the first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span of things that have no source text.
    pub const NONE: Span = Span { file: u32::MAX, start: 0, end: 0 };

    /// The bytes `start..end` of `file`.
    pub fn new(file: u32, start: u32, end: u32) -> Span {
        Span { file, start, end }
    }

    /// The smallest span that holds both; the other one where one is [`Span::NONE`].
    pub fn to(self, other: Span) -> Span {
        match (self.is_none(), other.is_none()) {
            (true, _) => other,
            (_, true) => self,
            _ => Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }

    /// Whether the thing has no source text.
    pub fn is_none(self) -> bool {
        self.file == u32::MAX
    }
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The compiler reports it and goes on.
    Warning,
    /// The compiler reports it and produces no code.
    Error,
}

/// A stable error code: `E0123`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}

/// An error or a warning. `message` says in one line what is wrong, `label` what is at the place, and `help`
/// what the user can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// Stable code, listed in docs/errors.md.
    pub code: Code,
    /// One line, no full stop.
    pub message: String,
    /// The place in the source that the message is about.
    pub span: Span,
    /// A text that says what is at the place. It may be empty.
    pub label: String,
    /// Other places that matter, with what they are.
    pub related: Vec<(Span, String)>,
    /// What the user can do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            span,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    /// A warning at `span`.
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Sets the text that says what is at the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds a text that says what the user can do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Another place that matters.
    #[must_use]
    pub fn related(mut self, span: Span, what: impl Into<String>) -> Diagnostic {
        self.related.push((span, what.into()));
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{kind}[{}]: {}", self.code, self.message)?;
        if !self.label.is_empty() {
            write!(f, " ({})", self.label)?;
        }
        if let Some(help) = &self.help {
            write!(f, "; help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
