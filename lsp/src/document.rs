//! An open file, and the compiler's analysis of it.

use crate::Workspace;
use lsp_types::{Position, Range};
use std::path::PathBuf;
use weft_abi::LoweringRequest;
use weft_ir::diag::{Diagnostic, Span};
use weft_isa::Target;
use weft_lang::codes::meaning;
use weft_lang::elaborate::{Defines, Kinds, Program, Resolution};
use weft_lang::source::SourceMap;

/// The number of the open file among its sources.
pub(crate) const ROOT: u32 = 0;

/// The target of the accesses that are shown, which is the default of `weft compile`.
const TARGET: &str = "sm_90a";

/// An open file.
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The analysis of the last text without syntax errors.
    pub(crate) analysis: Analysis,
    /// The errors of the current text.
    pub(crate) found: Vec<Diagnostic>,
}

/// The analysis of a text without syntax errors.
#[derive(Default)]
pub(crate) struct Analysis {
    pub(crate) sources: SourceMap,
    pub(crate) program: Program,
    pub(crate) names: Resolution,
    pub(crate) kinds: Kinds,
    /// Lines of the text, counted from 0, with the instructions of an access on that line.
    pub(crate) accesses: Vec<(u32, String)>,
}

impl Document {
    pub(crate) fn new(path: PathBuf) -> Document {
        Document { path, text: String::new(), analysis: Analysis::default(), found: Vec::new() }
    }

    /// Replaces the text.
    pub(crate) fn set(&mut self, text: String, workspace: &Workspace) {
        let mut sources = SourceMap::new();
        let root = sources.add(self.path.display().to_string(), text.clone());
        let loader = (workspace.loader)(&self.path);
        self.text = text;
        match Program::load(&mut sources, root, &*loader) {
            Ok(program) => {
                (self.analysis, self.found) = Analysis::new(sources, program);
            }
            Err(found) => self.found = found,
        }
        let mut seen = Vec::new();
        self.found.retain(|d| {
            let place = (d.code, d.span, d.message.clone());
            let new = !seen.contains(&place);
            seen.push(place);
            new
        });
    }
}

impl Analysis {
    fn new(sources: SourceMap, program: Program) -> (Analysis, Vec<Diagnostic>) {
        let names = program.resolve(true);
        let mut found = names.found.clone();
        let mut out = Analysis { sources, program, names, ..Analysis::default() };
        // A name that does not exist does not hide what is known about the kernels without it.
        let resolved = found.is_empty();
        for head in out.program.heads() {
            let errors = out.kernel(&head.name);
            found.extend(errors.into_iter().filter(|_| resolved));
        }
        (out, found)
    }

    /// Compiles a kernel to the machine level with the defaults of its compile-time parameters. A
    /// kernel with a parameter without a default is compiled only when it is used, so the missing
    /// value is not an error here.
    fn kernel(&mut self, name: &str) -> Vec<Diagnostic> {
        let defines = Defines::new();
        let (kinds, errors) = self.program.kinds(name, &defines);
        for (place, texts) in kinds {
            let all = self.kinds.entry(place).or_default();
            for text in texts {
                if !all.contains(&text) {
                    all.push(text);
                }
            }
        }
        if !errors.is_empty() {
            return errors.into_iter().filter(|d| d.code != meaning::NOT_GIVEN).collect();
        }
        let compiled = match self.program.compile(Some(name), &defines) {
            Ok(compiled) => compiled,
            Err(found) => return found,
        };
        let mut found = compiled.module.warnings.clone();
        let Ok(target) = TARGET.parse::<Target>() else { return found };
        let options = weft_passes::Options::new(LoweringRequest::Auto.decide(true), target);
        match weft_passes::run(compiled.module, &options) {
            Ok(lowered) => {
                for access in &lowered.report.accesses {
                    if access.span.file == ROOT
                        && let Some(at) = self.sources.line_column(access.span)
                    {
                        self.accesses.push((at.line - 1, access.to_string()));
                    }
                }
            }
            Err(errors) => found.extend(errors),
        }
        found
    }
}

/// The byte at a position, which counts UTF-16 units, or the end of the line for a position after
/// it.
pub(crate) fn byte_at(text: &str, at: Position) -> usize {
    let mut start = 0;
    for _ in 0..at.line {
        match text[start..].find('\n') {
            Some(end) => start += end + 1,
            None => return text.len(),
        }
    }
    let line = text[start..].split('\n').next().unwrap_or_default();
    let mut units = 0;
    for (n, c) in line.char_indices() {
        if units >= at.character as usize {
            return start + n;
        }
        units += c.len_utf16();
    }
    start + line.len()
}

/// The position of a byte.
pub(crate) fn position_at(text: &str, byte: usize) -> Position {
    let before = &text[..text.floor_char_boundary(byte.min(text.len()))];
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count();
    Position::new(u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// The range of a span in its text.
pub(crate) fn range_of(text: &str, span: Span) -> Range {
    if span.is_none() {
        return Range::default();
    }
    Range::new(position_at(text, span.start as usize), position_at(text, span.end as usize))
}

/// The name at or before a byte, with its range of bytes.
pub(crate) fn word_at(text: &str, byte: usize) -> Option<(&str, std::ops::Range<usize>)> {
    let belongs = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (before, after) = text.split_at(text.floor_char_boundary(byte));
    let start = before.len() - before.chars().rev().take_while(|c| belongs(*c)).count();
    let end = byte + after.chars().take_while(|c| belongs(*c)).count();
    (start < end).then(|| (&text[start..end], start..end))
}
