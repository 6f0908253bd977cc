//! Documents, which are text with possible line breaks, and the printer that selects the line
//! breaks.

use super::MAX_WIDTH;

/// A piece of text whose line breaks are not decided yet.
pub(super) struct Doc<'a> {
    kind: DocKind<'a>,
    /// Whether it does not fit on one line.
    breaks: bool,
    /// Whether it ends in a comment after which the line must end.
    trails: bool,
}

enum DocKind<'a> {
    /// A token, or spaces between tokens.
    Text(&'a str),
    /// A space, or a line break if the group is broken.
    Line,
    /// Nothing, or a line break if the group is broken.
    Soft,
    /// A line break.
    Hard,
    /// An empty line, unless nothing precedes it.
    Blank,
    /// A comma if the group is broken, and otherwise nothing.
    Comma,
    Seq(Vec<Doc<'a>>),
    Indent(Box<Doc<'a>>),
    /// A group, in which all possible line breaks are used or none is.
    Group(Box<Doc<'a>>),
    /// A space, or a line break if the document after it does not fit.
    FillLine,
    /// A comment on a line of its own.
    Above(&'a str),
    /// A comment that is followed by tokens on the same line.
    Inline(&'a str),
    /// A comment that ends a line.
    Trailing(&'a str),
    /// The space before the `=` of a variable. If `wanted`, the source has more than one space there.
    Equals {
        wanted: bool,
    },
}

impl<'a> Doc<'a> {
    const fn new(kind: DocKind<'a>, breaks: bool, trails: bool) -> Doc<'a> {
        Doc { kind, breaks, trails }
    }

    pub(super) fn text(text: &'a str) -> Doc<'a> {
        Doc::new(DocKind::Text(text), false, false)
    }

    pub(super) const LINE: Doc<'static> = Doc::new(DocKind::Line, false, false);
    pub(super) const FILL_LINE: Doc<'static> = Doc::new(DocKind::FillLine, false, false);
    pub(super) const SOFT: Doc<'static> = Doc::new(DocKind::Soft, false, false);
    pub(super) const HARD: Doc<'static> = Doc::new(DocKind::Hard, true, false);
    pub(super) const BLANK: Doc<'static> = Doc::new(DocKind::Blank, true, false);
    pub(super) const COMMA: Doc<'static> = Doc::new(DocKind::Comma, false, false);

    pub(super) fn seq(parts: Vec<Doc<'a>>) -> Doc<'a> {
        let (mut breaks, mut trails) = (false, false);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            breaks |= part.breaks || trails;
            trails = part.trails;
        }
        Doc::new(DocKind::Seq(parts), breaks, trails)
    }

    pub(super) fn indent(self) -> Doc<'a> {
        let (breaks, trails) = (self.breaks, self.trails);
        Doc::new(DocKind::Indent(Box::new(self)), breaks, trails)
    }

    pub(super) fn group(self) -> Doc<'a> {
        let (breaks, trails) = (self.breaks, self.trails);
        Doc::new(DocKind::Group(Box::new(self)), breaks, trails)
    }

    /// The same document, which is marked as not fitting on one line if `broken` is set.
    pub(super) fn broken_if(mut self, broken: bool) -> Doc<'a> {
        self.breaks |= broken;
        self
    }

    pub(super) fn above(comment: &'a str) -> Doc<'a> {
        Doc::new(DocKind::Above(comment), true, false)
    }

    pub(super) fn inline(comment: &'a str) -> Doc<'a> {
        Doc::new(DocKind::Inline(comment), comment.contains('\n'), false)
    }

    pub(super) fn trailing(comment: &'a str) -> Doc<'a> {
        Doc::new(DocKind::Trailing(comment), false, true)
    }

    pub(super) fn equals(wanted: bool) -> Doc<'a> {
        Doc::new(DocKind::Equals { wanted }, false, false)
    }

    /// Whether it contains line breaks in any case, for example because of comments.
    pub(super) fn has_lines(&self) -> bool {
        self.breaks
    }

    fn is_empty(&self) -> bool {
        match &self.kind {
            DocKind::Seq(parts) => parts.iter().all(Doc::is_empty),
            _ => false,
        }
    }

    /// Whether it has at most `max` characters on one line and consists of few tokens.
    pub(super) fn is_short(&self, max: usize) -> bool {
        !self.breaks && !self.trails && fits(&[(0, false, self)], &[], max)
    }
}

/// A position in the printed text that can be moved to the right for alignment with lines above and
/// below.
pub(super) enum Mark {
    /// The space before the `=` of a variable.
    Equals { wanted: bool },
    /// The end of the code before a comment.
    Comment,
}

/// The printed text, and its marks with their positions in bytes.
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) marks: Vec<(usize, Mark)>,
}

/// A document that is to be printed: its indentation, whether its group is broken, and the
/// document.
type Step<'d, 'a> = (usize, bool, &'d Doc<'a>);

struct Printer<'a> {
    out: Printed,
    /// The number of characters in the last line.
    column: usize,
    /// The last line is still empty, and will be indented by this.
    fresh: Option<usize>,
    /// A comment for the end of the line.
    pending: Option<&'a str>,
}

/// Prints a document.
pub(super) fn print(doc: &Doc<'_>) -> Printed {
    let out = Printed { text: String::new(), marks: Vec::new() };
    let mut printer = Printer { out, column: 0, fresh: Some(0), pending: None };
    printer.run(doc);
    printer.end_line(0);
    printer.out
}

impl<'a> Printer<'a> {
    fn run(&mut self, doc: &Doc<'a>) {
        let mut steps: Vec<Step<'_, 'a>> = vec![(0, true, doc)];
        while let Some((indent, broken, doc)) = steps.pop() {
            match &doc.kind {
                DocKind::Text(text) => self.token(text, indent),
                DocKind::Comma if broken => self.token(",", indent),
                DocKind::Comma => {}
                DocKind::Hard => self.end_line(indent),
                DocKind::Line | DocKind::Soft if broken => self.end_line(indent),
                DocKind::Line => self.token(" ", indent),
                DocKind::Soft => {}
                DocKind::Blank => self.blank(),
                DocKind::Seq(parts) => steps.extend(parts.iter().rev().map(|part| (indent, broken, part))),
                DocKind::Indent(inner) => steps.push((indent + 4, broken, inner)),
                DocKind::Group(inner) => {
                    let room = MAX_WIDTH.saturating_sub(self.fresh.unwrap_or(self.column));
                    let flat = !doc.breaks && fits(&[(indent, false, inner)], &steps, room);
                    steps.push((indent, !flat, inner));
                }
                DocKind::FillLine => {
                    let room = MAX_WIDTH.saturating_sub(self.column + 1);
                    let next = steps.last().filter(|(_, _, next)| !next.breaks);
                    let stays = next.is_some_and(|(_, _, next)| fits(&[(indent, false, next)], &[], room));
                    if stays || !broken { self.token(" ", indent) } else { self.end_line(indent) }
                }
                DocKind::Above(comment) => {
                    self.end_line(indent);
                    self.write(comment);
                    self.end_line(indent);
                }
                DocKind::Inline(comment) => self.inline(comment, indent),
                DocKind::Trailing(comment) => {
                    if self.pending.is_some() {
                        self.end_line(indent);
                    }
                    self.pending = Some(comment);
                }
                DocKind::Equals { wanted } => {
                    self.out.marks.push((self.out.text.len(), Mark::Equals { wanted: *wanted }));
                    self.token(" ", indent);
                }
            }
        }
    }

    fn token(&mut self, text: &str, indent: usize) {
        let stays = matches!(text, "," | ";" | " ");
        if self.pending.is_some() && !stays {
            self.end_line(indent);
        }
        if text != " " || self.fresh.is_none() {
            self.write(text);
        }
    }

    fn inline(&mut self, comment: &'a str, indent: usize) {
        if self.pending.is_some() {
            self.end_line(indent);
        }
        if self.fresh.is_none() && !self.out.text.ends_with([' ', '(', '[', '<']) {
            self.write(" ");
        }
        self.write(comment);
        self.write(" ");
    }

    fn write(&mut self, text: &str) {
        if let Some(indent) = self.fresh.take() {
            self.out.text.extend(std::iter::repeat_n(' ', indent));
            self.column = indent;
        }
        self.out.text.push_str(text);
        self.column = match text.rsplit_once('\n') {
            Some((_, last)) => last.chars().count(),
            None => self.column + text.chars().count(),
        };
    }

    /// Ends the line, unless it is empty. The next line has this indentation.
    fn end_line(&mut self, indent: usize) {
        let code = self.out.text.trim_end_matches(' ').len();
        if self.fresh.is_none() {
            self.out.text.truncate(code);
        }
        if let Some(comment) = self.pending.take() {
            if self.fresh.is_none() {
                self.out.marks.push((code, Mark::Comment));
                self.out.text.push_str("  ");
            }
            self.write(comment);
        }
        if self.fresh.is_none() {
            self.out.text.push('\n');
        }
        self.fresh = Some(indent);
    }

    fn blank(&mut self) {
        if self.fresh.is_some() && !self.out.text.is_empty() && !self.out.text.ends_with("\n\n") {
            self.out.text.push('\n');
        }
    }
}

/// Whether `first`, and the part of `rest` before the next possible line break, fit into `room`
/// characters.
fn fits(first: &[Step<'_, '_>], rest: &[Step<'_, '_>], room: usize) -> bool {
    let mut used = 0;
    let mut steps: Vec<Step<'_, '_>> = first.to_vec();
    let mut rest = rest.iter().rev();
    while used <= room {
        let Some((indent, broken, doc)) = steps.pop().or_else(|| rest.next().copied()) else { return true };
        match &doc.kind {
            DocKind::Text(text) => used += text.chars().count(),
            DocKind::Comma => used += usize::from(broken),
            DocKind::Line | DocKind::Soft | DocKind::FillLine if broken => return true,
            DocKind::Hard | DocKind::Blank | DocKind::Above(_) => return true,
            DocKind::Line | DocKind::FillLine | DocKind::Equals { .. } => used += 1,
            DocKind::Soft | DocKind::Trailing(_) => {}
            DocKind::Inline(comment) => used += comment.chars().count() + 1,
            DocKind::Seq(parts) => steps.extend(parts.iter().rev().map(|part| (indent, broken, part))),
            DocKind::Indent(inner) => steps.push((indent, broken, inner)),
            DocKind::Group(inner) => steps.push((indent, broken, inner)),
        }
    }
    false
}
