//! Renders diagnostics for people: the message, the source with marked places, and the help.

use crate::source::SourceMap;
use annotate_snippets::{Annotation, AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use std::ops::Range;
use weft_ir::diag::{Diagnostic, Severity, Span};

/// Whether the text carries ANSI colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Color {
    /// The text carries no colours.
    Never,
    /// The text carries escape sequences, for a terminal.
    Always,
}

/// The maximum number of columns of a line. Longer source lines are shown in part.
const WIDTH: usize = 120;

/// The maximum number of bytes of a file that one diagnostic shows. Places farther apart get an
/// excerpt each, and only a piece of a longer line is shown.
const EXCERPT: usize = 32 << 10;

/// The number of bytes shown on either side of a place in a line longer than [`EXCERPT`].
const CONTEXT: usize = 60;

/// A message with places in source text: a [`Diagnostic`], or a finding of another crate.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The stable code of the message.
    pub code: &'a str,
    /// The message: one line without a full stop.
    pub message: &'a str,
    /// The places of the message, with the primary one first. Each has a description, which can be
    /// empty.
    pub places: &'a [(Span, String)],
    /// Further lines below the source text.
    pub notes: &'a [String],
    /// Advice for the user.
    pub help: Option<&'a str>,
}

/// Renders each diagnostic as a paragraph, in the given order and separated by empty lines.
pub fn render(diagnostics: &[Diagnostic], sources: &SourceMap, color: Color) -> String {
    let paragraph = |d: &Diagnostic| {
        let primary = (d.span, d.label.clone());
        let places: Vec<_> = std::iter::once(primary).chain(d.related.iter().cloned()).collect();
        let message = Message {
            severity: d.severity,
            code: &d.code.to_string(),
            message: &d.message,
            places: &places,
            notes: &[],
            help: d.help.as_deref(),
        };
        render_message(&message, sources, color)
    };
    diagnostics.iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

/// Renders one message as a paragraph.
pub fn render_message(message: &Message<'_>, sources: &SourceMap, color: Color) -> String {
    let renderer = match color {
        Color::Never => Renderer::plain(),
        Color::Always => Renderer::styled(),
    };
    renderer.term_width(WIDTH).render(&[group(message, sources)]) + "\n"
}

fn group<'a>(message: &Message<'a>, sources: &'a SourceMap) -> Group<'a> {
    let level = match message.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(message.message).id(message.code.to_owned());
    let notes = message.notes.iter().map(|note| Level::NOTE.message(note).into());
    let help = message.help.into_iter().map(|help| Level::HELP.message(help).into());
    title.elements(excerpts(message, sources).into_iter().chain(notes).chain(help))
}

/// A place of a message.
struct MarkedSpan<'a> {
    span: Span,
    label: &'a str,
    kind: AnnotationKind,
}

/// The source text of a message's places: an excerpt per file, beginning with that of the primary
/// place.
fn excerpts<'a>(message: &Message<'a>, sources: &'a SourceMap) -> Vec<Element<'a>> {
    let mut files: Vec<Vec<MarkedSpan<'a>>> = Vec::new();
    for (i, (span, label)) in message.places.iter().enumerate() {
        let kind = if i == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        let place = MarkedSpan { span: *span, label, kind };
        match files.iter_mut().find(|file| file[0].span.file == place.span.file) {
            Some(file) => file.push(place),
            None => files.push(vec![place]),
        }
    }
    let mut elements = Vec::new();
    for file in files {
        match excerpt(&file, sources) {
            Some(element) => elements.push(element),
            None => elements.extend(file.iter().flat_map(|place| alone(place, sources))),
        }
    }
    elements
}

/// An excerpt with all places of a file, if they are near each other.
fn excerpt<'a>(places: &[MarkedSpan<'a>], sources: &'a SourceMap) -> Option<Element<'a>> {
    let all = places.iter().fold(Span::NONE, |all, place| all.to(place.span));
    let (lines, first) = sources.lines_of(all)?;
    let nothing_to_mark =
        places.iter().all(|place| place.label.is_empty() && place.span.start == place.span.end);
    if lines.len() > EXCERPT || nothing_to_mark {
        return None;
    }
    let marks = places.iter().filter_map(|place| {
        let bytes = sources.bytes_of(place.span)?;
        Some(mark(place, bytes.start - lines.start..bytes.end - lines.start))
    });
    let source = sources.text(all.file)?.get(lines.clone())?;
    let snippet = Snippet::source(source).path(sources.name(all.file)).line_start(first as usize);
    Some(snippet.annotations(marks).into())
}

fn mark<'a>(place: &MarkedSpan<'a>, bytes: Range<usize>) -> Annotation<'a> {
    let mark = place.kind.span(bytes);
    if place.label.is_empty() { mark } else { mark.label(place.label) }
}

/// An excerpt of a single place: its lines, a piece of them if they are very long, or only its
/// position.
fn alone<'a>(place: &MarkedSpan<'a>, sources: &'a SourceMap) -> Vec<Element<'a>> {
    if let Some(element) = excerpt(std::slice::from_ref(place), sources) {
        return vec![element];
    }
    let (Some(at), Some(name)) = (sources.line_column(place.span), sources.name(place.span.file)) else {
        return Vec::new();
    };
    let origin = Origin::path(name).line(at.line as usize).char_column(at.column as usize);
    let mut elements = vec![origin.into()];
    if !place.label.is_empty() {
        elements.extend(piece(place, sources, at.line));
    }
    elements
}

fn piece<'a>(place: &MarkedSpan<'a>, sources: &'a SourceMap, line: u32) -> Option<Element<'a>> {
    let text = sources.text(place.span.file)?;
    let bytes = sources.bytes_of(place.span)?;
    let before = &text[text.ceil_char_boundary(bytes.start.saturating_sub(CONTEXT))..bytes.start];
    let before = before.rsplit('\n').next().unwrap_or_default();
    let after = &text[bytes.start..text.floor_char_boundary(bytes.start + CONTEXT)];
    let after = after.split('\n').next().unwrap_or_default();
    let start = ELLIPSIS.len() + before.len();
    let marked = start..start + after.len().min(bytes.len());
    let source = format!("{ELLIPSIS}{before}{after}{ELLIPSIS}");
    Some(Snippet::source(source).line_start(line as usize).annotation(mark(place, marked)).into())
}

const ELLIPSIS: &str = "...";
