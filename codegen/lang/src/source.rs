//! Source files by number, and the lines and columns of bytes.

use std::ops::Range;
use std::sync::OnceLock;
use weft_ir::diag::Span;

/// The maximum size of a `.weft` file in bytes. A larger file is rejected before its text is read.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// The files of one compilation. A [`Span`]'s `file` is the number that [`SourceMap::add`]
/// returned.
#[derive(Default, Debug)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

#[derive(Debug)]
struct SourceFile {
    name: String,
    text: String,
    /// The first byte of every line, computed when it is first needed, since most compilations do
    /// not need it.
    lines: OnceLock<Vec<u32>>,
}

/// The line and column of a byte, both counted from 1. The column counts characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineColumn {
    /// The line, counted from 1.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
}

impl SourceMap {
    /// Creates a map without files.
    pub fn new() -> SourceMap {
        SourceMap::default()
    }

    /// Adds a file and returns its number. Diagnostics show the name, such as a path or `<stdin>`.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.files.push(SourceFile { name: name.into(), text: text.into(), lines: OnceLock::new() });
        u32::try_from(self.files.len() - 1).unwrap_or(Span::NONE.file)
    }

    /// The number of files. They are numbered from 0.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether the map has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The name of a file.
    pub fn name(&self, file: u32) -> Option<&str> {
        self.file(file).map(|f| f.name.as_str())
    }

    /// The text of a file.
    pub fn text(&self, file: u32) -> Option<&str> {
        self.file(file).map(|f| f.text.as_str())
    }

    /// The line and the column at which `span` begins. It is `None` if the span has no source text.
    pub fn line_column(&self, span: Span) -> Option<LineColumn> {
        let file = self.file(span.file)?;
        let at = file.clamp(span).start;
        let line = file.line_of(at);
        let start = *file.lines().get(line)? as usize;
        let column = file.text.get(start..at)?.chars().count() + 1;
        Some(LineColumn { line: count(line + 1), column: count(column) })
    }

    /// The span from a position to the end of its line, without a comment at the end. It is `None`
    /// if the position does not exist.
    pub fn span_at(&self, file: u32, at: LineColumn) -> Option<Span> {
        let f = self.file(file)?;
        let line = (at.line as usize).checked_sub(1)?;
        let start = *f.lines().get(line)? as usize;
        let text = f.text.get(start..)?.lines().next()?;
        let skipped = text.chars().take((at.column as usize).saturating_sub(1)).map(char::len_utf8).sum();
        let rest = text.get(skipped..)?;
        let rest = rest.split_once("//").map_or(rest, |(code, _)| code).trim_end();
        Some(Span::new(file, count(start + skipped), count(start + skipped + rest.len())))
    }

    /// The number of the file with that name.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.files.iter().position(|f| f.name == name).map(count)
    }

    /// The text of `span`, or `None` if the span has no source text. A span that exceeds its file
    /// or cuts a character is narrowed.
    pub fn snippet(&self, span: Span) -> Option<&str> {
        let file = self.file(span.file)?;
        file.text.get(file.clamp(span))
    }

    /// The bytes of the whole lines that hold `span` (without the end of the last line) and the
    /// number of the first line, from 1.
    pub(crate) fn lines_of(&self, span: Span) -> Option<(Range<usize>, u32)> {
        let file = self.file(span.file)?;
        let bytes = file.clamp(span);
        let first = file.line_of(bytes.start);
        let start = *file.lines().get(first)? as usize;
        let end = file.text[bytes.end..].find('\n').map_or(file.text.len(), |n| bytes.end + n);
        Some((start..end, count(first + 1)))
    }

    /// The bytes of `span` that exist in its file, on character boundaries.
    pub(crate) fn bytes_of(&self, span: Span) -> Option<Range<usize>> {
        Some(self.file(span.file)?.clamp(span))
    }

    fn file(&self, file: u32) -> Option<&SourceFile> {
        self.files.get(file as usize)
    }
}

impl SourceFile {
    /// The beginnings of lines. Lines beyond [`MAX_FILE_BYTES`] are not separated, because nothing
    /// there is compiled.
    fn lines(&self) -> &[u32] {
        self.lines.get_or_init(|| {
            let head = &self.text.as_bytes()[..self.text.len().min(MAX_FILE_BYTES)];
            let ends = head.iter().enumerate().filter(|(_, b)| **b == b'\n');
            std::iter::once(0).chain(ends.map(|(n, _)| count(n + 1))).collect()
        })
    }

    /// The line of a byte, from 0.
    fn line_of(&self, at: usize) -> usize {
        self.lines().partition_point(|start| *start as usize <= at).saturating_sub(1)
    }

    fn clamp(&self, span: Span) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start as usize);
        let end = self.text.ceil_char_boundary(span.end as usize).max(start);
        start..end
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let mut map = SourceMap::new();
        let file = map.add("a.weft", "let x = 1;\n\"é\" + y\n");
        let at = |start| map.line_column(Span::new(file, start, start)).unwrap();
        assert_eq!(at(0), LineColumn { line: 1, column: 1 });
        assert_eq!(at(10), LineColumn { line: 1, column: 11 });
        assert_eq!(at(11), LineColumn { line: 2, column: 1 });
        assert_eq!(at(18), LineColumn { line: 2, column: 7 }, "é is two bytes and one column");
        assert_eq!(at(20), LineColumn { line: 3, column: 1 });
        assert_eq!(at(9999), LineColumn { line: 3, column: 1 }, "a span past the end stands at the end");
        assert_eq!(map.line_column(Span::NONE), None);
    }

    #[test]
    fn a_position_is_found_again() {
        let mut map = SourceMap::new();
        let file = map.add("a.weft", "let x = 1;\n\"é\" + y;  // why\n");
        let rest = |line, column| map.snippet(map.span_at(file, LineColumn { line, column })?);
        assert_eq!(rest(1, 5), Some("x = 1;"));
        assert_eq!(rest(2, 3), Some("\" + y;"));
        assert_eq!(rest(2, 99), Some(""));
        assert_eq!(rest(0, 1), None);
        assert_eq!(rest(9, 1), None);
        assert_eq!((map.find("a.weft"), map.find("b.weft")), (Some(file), None));
    }

    #[test]
    fn snippets_never_cut_a_character() {
        let mut map = SourceMap::new();
        let file = map.add("a.weft", "aéb");
        assert_eq!(map.snippet(Span::new(file, 2, 2)), Some("é"));
        assert_eq!(map.snippet(Span::new(file, 1, 3)), Some("é"));
        assert_eq!(map.snippet(Span::new(file, 3, 1)), Some(""));
        assert_eq!(map.snippet(Span::new(file, 3, 99)), Some("b"));
        assert_eq!(map.snippet(Span::new(7, 0, 1)), None);
        assert_eq!(map.lines_of(Span::new(file, 1, 2)), Some((0..4, 1)));
    }
}
