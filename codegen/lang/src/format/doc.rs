//! Documents: text with places where a line may end, and the printer that decides which of them do.

use super::MAX_WIDTH;

/// A piece of text whose lines are not decided yet.
pub(super) struct Doc<'a> {
    kind: Kind<'a>,
    /// It cannot stand on one line.
    breaks: bool,
    /// It ends in a comment after which the line must end.
    trails: bool,
}

enum Kind<'a> {
    /// A token, or spaces between tokens.
    Text(&'a str),
    /// A space, or the end of the line where the group is broken.
    Line,
    /// Nothing, or the end of the line where the group is broken.
    Soft,
    /// The end of the line.
    Hard,
    /// A line without text, unless nothing precedes it.
    Blank,
    /// A comma where the group is broken, else nothing.
    Comma,
    Seq(Vec<Doc<'a>>),
    Indent(Box<Doc<'a>>),
    /// All its lines end, or none does.
    Group(Box<Doc<'a>>),
    /// A space, or the end of the line where the document after it does not fit.
    FillLine,
    /// A comment on a line of its own.
    Above(&'a str),
    /// A comment with tokens of the same line after it.
    Inline(&'a str),
    /// A comment that ends a line.
    Trailing(&'a str),
    /// The space before the `=` of a variable. If `wanted`, the source has more than one space there.
    Equals {
        wanted: bool,
    },
}

impl<'a> Doc<'a> {
    const fn new(kind: Kind<'a>, breaks: bool, trails: bool) -> Doc<'a> {
        Doc { kind, breaks, trails }
    }

    pub(super) fn text(text: &'a str) -> Doc<'a> {
        Doc::new(Kind::Text(text), false, false)
    }

    pub(super) const LINE: Doc<'static> = Doc::new(Kind::Line, false, false);
    pub(super) const FILL_LINE: Doc<'static> = Doc::new(Kind::FillLine, false, false);
    pub(super) const SOFT: Doc<'static> = Doc::new(Kind::Soft, false, false);
    pub(super) const HARD: Doc<'static> = Doc::new(Kind::Hard, true, false);
    pub(super) const BLANK: Doc<'static> = Doc::new(Kind::Blank, true, false);
    pub(super) const COMMA: Doc<'static> = Doc::new(Kind::Comma, false, false);

    pub(super) fn seq(parts: Vec<Doc<'a>>) -> Doc<'a> {
        let (mut breaks, mut trails) = (false, false);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            breaks |= part.breaks || trails;
            trails = part.trails;
        }
        Doc::new(Kind::Seq(parts), breaks, trails)
    }

    pub(super) fn indent(self) -> Doc<'a> {
        let (breaks, trails) = (self.breaks, self.trails);
        Doc::new(Kind::Indent(Box::new(self)), breaks, trails)
    }

    pub(super) fn group(self) -> Doc<'a> {
        let (breaks, trails) = (self.breaks, self.trails);
        Doc::new(Kind::Group(Box::new(self)), breaks, trails)
    }

    /// The same, which cannot stand on one line if `broken`.
    pub(super) fn broken_if(mut self, broken: bool) -> Doc<'a> {
        self.breaks |= broken;
        self
    }

    pub(super) fn above(comment: &'a str) -> Doc<'a> {
        Doc::new(Kind::Above(comment), true, false)
    }

    pub(super) fn inline(comment: &'a str) -> Doc<'a> {
        Doc::new(Kind::Inline(comment), comment.contains('\n'), false)
    }

    pub(super) fn trailing(comment: &'a str) -> Doc<'a> {
        Doc::new(Kind::Trailing(comment), false, true)
    }

    pub(super) fn equals(wanted: bool) -> Doc<'a> {
        Doc::new(Kind::Equals { wanted }, false, false)
    }

    /// Whether it has lines of its own, such as comments.
    pub(super) fn has_lines(&self) -> bool {
        self.breaks
    }

    fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Seq(parts) => parts.iter().all(Doc::is_empty),
            _ => false,
        }
    }

    /// Whether it is at most `most` characters on one line, of one or a few tokens.
    pub(super) fn is_short(&self, most: usize) -> bool {
        !self.breaks && !self.trails && fits(&[(0, false, self)], &[], most)
    }
}

/// A place of the printed text that is moved to the right of others above and below it.
pub(super) enum Mark {
    /// The space before the `=` of a variable.
    Equals { wanted: bool },
    /// The end of the code before a comment.
    Comment,
}

/// The printed text and its marks, each with its byte.
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) marks: Vec<(usize, Mark)>,
}

/// A document to be printed: its indentation, whether its group is broken, and what it is.
type Step<'d, 'a> = (usize, bool, &'d Doc<'a>);

struct Printer<'a> {
    out: Printed,
    /// Characters in the last line.
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
                Kind::Text(text) => self.token(text, indent),
                Kind::Comma if broken => self.token(",", indent),
                Kind::Comma => {}
                Kind::Hard => self.end_line(indent),
                Kind::Line | Kind::Soft if broken => self.end_line(indent),
                Kind::Line => self.token(" ", indent),
                Kind::Soft => {}
                Kind::Blank => self.blank(),
                Kind::Seq(parts) => steps.extend(parts.iter().rev().map(|part| (indent, broken, part))),
                Kind::Indent(inner) => steps.push((indent + 4, broken, inner)),
                Kind::Group(inner) => {
                    let room = MAX_WIDTH.saturating_sub(self.fresh.unwrap_or(self.column));
                    let flat = !doc.breaks && fits(&[(indent, false, inner)], &steps, room);
                    steps.push((indent, !flat, inner));
                }
                Kind::FillLine => {
                    let room = MAX_WIDTH.saturating_sub(self.column + 1);
                    let next = steps.last().filter(|(_, _, next)| !next.breaks);
                    let stays = next.is_some_and(|(_, _, next)| fits(&[(indent, false, next)], &[], room));
                    if stays || !broken { self.token(" ", indent) } else { self.end_line(indent) }
                }
                Kind::Above(comment) => {
                    self.end_line(indent);
                    self.write(comment);
                    self.end_line(indent);
                }
                Kind::Inline(comment) => self.inline(comment, indent),
                Kind::Trailing(comment) => {
                    if self.pending.is_some() {
                        self.end_line(indent);
                    }
                    self.pending = Some(comment);
                }
                Kind::Equals { wanted } => {
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

    /// Ends the line, unless it is empty; the next one has this indentation.
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

/// Whether `first`, and what `rest` has in front of the next place where a line may end, fit in `room` characters.
fn fits(first: &[Step<'_, '_>], rest: &[Step<'_, '_>], room: usize) -> bool {
    let mut used = 0;
    let mut steps: Vec<Step<'_, '_>> = first.to_vec();
    let mut rest = rest.iter().rev();
    while used <= room {
        let Some((indent, broken, doc)) = steps.pop().or_else(|| rest.next().copied()) else { return true };
        match &doc.kind {
            Kind::Text(text) => used += text.chars().count(),
            Kind::Comma => used += usize::from(broken),
            Kind::Line | Kind::Soft | Kind::FillLine if broken => return true,
            Kind::Hard | Kind::Blank | Kind::Above(_) => return true,
            Kind::Line | Kind::FillLine | Kind::Equals { .. } => used += 1,
            Kind::Soft | Kind::Trailing(_) => {}
            Kind::Inline(comment) => used += comment.chars().count() + 1,
            Kind::Seq(parts) => steps.extend(parts.iter().rev().map(|part| (indent, broken, part))),
            Kind::Indent(inner) => steps.push((indent, broken, inner)),
            Kind::Group(inner) => steps.push((indent, broken, inner)),
        }
    }
    false
}
