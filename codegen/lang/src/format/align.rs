//! Alignment in columns: the `=` of variables and the comments at the ends of consecutive lines.

use super::MAX_WIDTH;
use super::doc::{Mark, Printed};
use std::ops::Range;

/// A line of the printed text with the positions of its marks.
struct Line<'a> {
    text: &'a str,
    equals: Option<(usize, bool)>,
    comment: Option<usize>,
}

/// The text with its columns aligned.
pub(super) fn align(printed: &Printed) -> String {
    let mut lines = lines(printed);
    let mut moved: Vec<String> = lines.iter().map(|line| line.text.to_owned()).collect();
    for run in runs(&lines, |line| line.declares()) {
        equals(&mut lines[run.clone()], &mut moved[run]);
    }
    for run in runs(&lines, |line| line.comment.map(|_| ())) {
        comments(&lines[run.clone()], &mut moved[run]);
    }
    moved.iter().flat_map(|line| [line, "\n"]).collect()
}

fn lines(printed: &Printed) -> Vec<Line<'_>> {
    let mut marks = printed.marks.iter().peekable();
    let mut start = 0;
    let mut lines = Vec::new();
    for text in printed.text.lines() {
        let mut line = Line { text, equals: None, comment: None };
        let end = start + text.len();
        while let Some((at, mark)) = marks.next_if(|(at, _)| *at <= end) {
            let at = at.saturating_sub(start);
            match mark {
                Mark::Equals { wanted } => line.equals = line.equals.or(Some((at, *wanted))),
                Mark::Comment => line.comment = Some(at),
            }
        }
        lines.push(line);
        start = end + 1;
    }
    lines
}

impl Line<'_> {
    fn code(&self) -> &str {
        self.text.get(..self.comment.unwrap_or(self.text.len())).unwrap_or(self.text)
    }

    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    /// The words with which the line begins, if it is the whole declaration of a variable.
    fn declares(&self) -> Option<&'static str> {
        let code = self.code();
        let words = ["let mut ", "let ", "const "].into_iter();
        let mut begins = words.filter(|words| code.trim_start().starts_with(words));
        begins.next().filter(|_| self.equals.is_some() && code.ends_with(';'))
    }
}

/// The ranges of consecutive lines with the same key and the same indentation. Lines without a key
/// are in no range.
fn runs<K: PartialEq>(lines: &[Line<'_>], key: impl Fn(&Line<'_>) -> Option<K>) -> Vec<Range<usize>> {
    let mut runs: Vec<(Range<usize>, (K, usize))> = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let Some(key) = key(line).map(|key| (key, line.indent())) else { continue };
        match runs.last_mut() {
            Some((run, of)) if run.end == n && *of == key => run.end = n + 1,
            _ => runs.push((n..n + 1, key)),
        }
    }
    runs.into_iter().map(|(run, _)| run).collect()
}

/// Aligns the `=` of these lines if the source does so and all of them fit.
fn equals(lines: &mut [Line<'_>], moved: &mut [String]) {
    let width = |line: &Line<'_>, at: usize| line.text[..at].chars().count();
    let places: Vec<(usize, bool)> = lines.iter().filter_map(|line| line.equals).collect();
    let column = lines.iter().zip(&places).map(|(line, (at, _))| width(line, *at)).max().unwrap_or(0);
    let gap = |line: &Line<'_>, at: usize| column - width(line, at);
    let too_long = lines
        .iter()
        .zip(&places)
        .any(|(line, (at, _))| line.code().chars().count() + gap(line, *at) > MAX_WIDTH);
    if too_long || !places.iter().any(|(_, wanted)| *wanted) {
        return;
    }
    for ((line, (at, _)), text) in lines.iter_mut().zip(&places).zip(moved) {
        let gap = gap(line, *at);
        text.insert_str(*at, &" ".repeat(gap));
        line.comment = line.comment.map(|comment| comment + gap);
    }
}

/// Aligns the comments of these lines if all of them fit.
fn comments(lines: &[Line<'_>], moved: &mut [String]) {
    let places: Vec<usize> = lines.iter().filter_map(|line| line.comment).collect();
    let width = |text: &str, at: usize| text[..at].chars().count();
    let column = moved.iter().zip(&places).map(|(text, at)| width(text, *at)).max().unwrap_or(0);
    let gap = |text: &str, at: usize| column - width(text, at);
    if moved.iter().zip(&places).any(|(text, at)| text.chars().count() + gap(text, *at) > MAX_WIDTH) {
        return;
    }
    for (text, at) in moved.iter_mut().zip(&places) {
        let gap = gap(text, *at);
        text.insert_str(*at, &" ".repeat(gap));
    }
}
