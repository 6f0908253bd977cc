//! The lines of a kernel at every level, each with the line of the text that it comes from.

use std::collections::{BTreeSet, HashMap};
use weft_ir::diag::Span;
use weft_ir::text::print_kernel_lines;
use weft_lang::source::SourceMap;

use crate::study::Study;

/// A line of a kernel's text or of a file that it uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    /// The number of the file.
    pub file: u32,
    /// The line, counted from 1.
    pub line: u32,
}

impl Key {
    /// The line at which a span begins.
    pub fn of(sources: &SourceMap, span: Span) -> Option<Key> {
        Some(Key { file: span.file, line: sources.line_column(span)?.line })
    }

    /// The key as text, for attributes of the page.
    pub fn text(self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// A line of a pane.
pub(crate) struct Line {
    /// The line number or address that is shown before it.
    pub label: String,
    pub text: String,
    /// The line of the text that it comes from.
    pub key: Option<Key>,
    /// The line of the PTX that it is or comes from.
    pub ptx: Option<u32>,
}

/// The lines of a kernel at every level.
pub(crate) struct Levels {
    pub ir: Vec<Line>,
    pub ptx: Vec<Line>,
    /// The lines of the machine code; empty if there is no listing.
    pub sass: Vec<Line>,
}

impl Levels {
    pub fn of(study: &Study) -> Levels {
        let ptx = ptx(&study.compiled.ptx, study.compiled.sources());
        let places: HashMap<u32, Key> = ptx.iter().filter_map(|l| Some((l.ptx?, l.key?))).collect();
        let sass = study.listing.as_ref().map(|l| sass(&l.sass, &places)).unwrap_or_default();
        Levels { ir: ir(study), ptx, sass }
    }

    /// The lines of the text that any line comes from.
    pub fn keys(&self) -> BTreeSet<Key> {
        [&self.ir, &self.ptx, &self.sass].into_iter().flatten().filter_map(|l| l.key).collect()
    }
}

fn ir(study: &Study) -> Vec<Line> {
    let Some(kernel) = study.kernel() else { return Vec::new() };
    let (text, spans) = print_kernel_lines(kernel);
    let lines = text.lines().zip(spans).zip(1..);
    let line = |((text, span), number): ((&str, Span), u32)| Line {
        label: number.to_string(),
        text: text.to_owned(),
        key: Key::of(study.compiled.sources(), span),
        ptx: None,
    };
    lines.map(line).collect()
}

/// The lines of PTX, numbered as in the whole text. Directives that only give source locations are
/// left out.
fn ptx(text: &str, sources: &SourceMap) -> Vec<Line> {
    let files: HashMap<&str, u32> = text.lines().filter_map(|l| file(l, sources)).collect();
    let mut at = None;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1u32..) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [".loc", file, row, ..] => {
                let row = row.parse().ok().filter(|row| *row > 0);
                at = files.get(file).zip(row).map(|(file, line)| Key { file: *file, line });
                continue;
            }
            [".file", ..] | ["//", "begin" | "end", "inline", "asm"] => continue,
            ["}"] if line == "}" => at = None,
            [label] if label.starts_with("$L__tmp") || label.starts_with("$L__func") => continue,
            _ => {}
        }
        let code = line.starts_with('\t') && line.ends_with(';');
        let text = line.replace('\t', "  ");
        lines.push(Line { label: number.to_string(), text, key: at.filter(|_| code), ptx: Some(number) });
    }
    lines.dedup_by(|next, last| next.text.trim().is_empty() && last.text.trim().is_empty());
    lines
}

/// The file that `.file NUMBER "NAME"` declares: its number in the PTX, and its number in the
/// compiler.
fn file<'t>(line: &'t str, sources: &SourceMap) -> Option<(&'t str, u32)> {
    let (number, name) = line.trim().strip_prefix(".file")?.trim().split_once(char::is_whitespace)?;
    Some((number, sources.find(name.trim().trim_matches('"'))?))
}

/// The instructions and labels in the output of nvdisasm. `places` maps each line of the PTX to a
/// line of the text.
fn sass(text: &str, places: &HashMap<u32, Key>) -> Vec<Line> {
    let mut from = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let words = line.trim();
        if let Some(rest) = words.strip_prefix("//## File") {
            from = rest.rsplit("line ").next().and_then(|n| n.split_whitespace().next()?.parse().ok());
        } else if let Some((address, code)) = words.strip_prefix("/*").and_then(|w| w.split_once("*/")) {
            let key = from.and_then(|n| places.get(&n).copied());
            let text = code.trim().trim_end_matches(';').trim_end().to_owned();
            lines.push(Line { label: address.to_owned(), text, key, ptx: from });
        } else if words.starts_with(".L_x_") && words.ends_with(':') {
            lines.push(Line { label: String::new(), text: words.to_owned(), key: None, ptx: None });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_lines_have_the_place_that_was_named_last() {
        let mut sources = SourceMap::new();
        sources.add("k.weft", "one\ntwo\nthree\n");
        let text = "\t.reg .b32 %r<3>;\n\t.loc\t1 2 5\n\tadd.s32 \t%r1, %r2, 1;\n\t.loc 1 0 0\n\tret;\n}\n\
                    \t.file\t1 \"k.weft\"\n";
        let lines = ptx(text, &sources);
        let shown: Vec<_> = lines.iter().map(|l| (&*l.label, l.key.map(Key::text))).collect();
        let want = [("1", None), ("3", Some("0:2".to_owned())), ("5", None), ("6", None)];
        assert_eq!(shown, want);
    }

    #[test]
    fn sass_lines_have_the_place_of_their_ptx_line() {
        let key = Key { file: 0, line: 9 };
        let text = ".text.k:\n\t//## File \".nv_debug_ptx_txt\", line 36\n        /*0010*/   S2R R18, SR_TID.X ;\n.L_x_1:\n";
        let lines = sass(text, &HashMap::from([(36, key)]));
        let shown: Vec<_> = lines.iter().map(|l| (&*l.label, &*l.text, l.key, l.ptx)).collect();
        assert_eq!(shown, [("0010", "S2R R18, SR_TID.X", Some(key), Some(36)), ("", ".L_x_1:", None, None)]);
    }
}
