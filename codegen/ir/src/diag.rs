//! Diagnostics as data: what is wrong, where, what was expected, and what to do. `weft-lang`
//! renders them.

use std::fmt;

/// A range of bytes of one source file. `file` is an index into the source map. [`Span::NONE`]
/// marks things without source text, such as those from the builder API and generated code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Span {
    /// The index of the source file.
    pub file: u32,
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The span of things that have no source text.
    pub const NONE: Span = Span { file: u32::MAX, start: 0, end: 0 };

    /// Creates the span of the bytes `start..end` of `file`.
    pub fn new(file: u32, start: u32, end: u32) -> Span {
        Span { file, start, end }
    }

    /// The smallest span that holds both spans. If one of them is [`Span::NONE`], the result is the
    /// other one.
    pub fn to(self, other: Span) -> Span {
        match (self.is_none(), other.is_none()) {
            (true, _) => other,
            (_, true) => self,
            _ => Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) },
        }
    }

    /// Whether the span is [`Span::NONE`].
    pub fn is_none(self) -> bool {
        self.file == u32::MAX
    }
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The compiler reports the problem and continues.
    Warning,
    /// The compiler reports the problem and produces no code.
    Error,
}

/// A stable error code such as `E0123`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.0)
    }
}

/// An error or a warning. `message` says in one line what is wrong, `label` describes the place,
/// and `help` says what the user can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The stable code, which docs/errors.md lists.
    pub code: Code,
    /// The message: one line without a full stop.
    pub message: String,
    /// The place in the source that the message is about.
    pub span: Span,
    /// A description of the place, which can be empty.
    pub label: String,
    /// Other places that matter, each with a description.
    pub related: Vec<(Span, String)>,
    /// Advice for the user.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates an error at `span`.
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

    /// Creates a warning at `span`.
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Sets the description of the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    /// Adds advice for the user.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds another place that matters, with a description.
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
