//! The requests of an editor about a document.

use crate::Workspace;
use crate::document::{Document, ROOT, byte_at, position_at, range_of, word_at};
use crate::uri::{path_of, uri_of};
use lsp_types::{
    CodeAction, CodeActionKind, CompletionItem, CompletionItemKind, DiagnosticRelatedInformation,
    DiagnosticSeverity, Documentation, Hover, HoverContents, Location, MarkupContent, MarkupKind,
    NumberOrString, Position, Range, TextEdit, Uri, WorkspaceEdit,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weft_ir::diag::{Diagnostic, Severity, Span};
use weft_lang::elaborate::{Builtin, builtins};
use weft_lang::format::format;
use weft_lang::{PLACED_WORDS, keywords};

impl Document {
    /// The errors of the text. Errors in files that it uses are shown at its beginning.
    pub(crate) fn diagnostics(&self, uri: &Uri, workspace: &Workspace) -> Vec<lsp_types::Diagnostic> {
        self.found.iter().map(|d| self.diagnostic(d, uri, workspace)).collect()
    }

    fn diagnostic(&self, d: &Diagnostic, uri: &Uri, workspace: &Workspace) -> lsp_types::Diagnostic {
        let mut message = d.message.clone();
        if !d.label.is_empty() {
            message.push_str(&format!("\n{}", d.label));
        }
        if let Some(help) = &d.help {
            message.push_str(&format!("\nhelp: {help}"));
        }
        let related = d.related.iter().filter_map(|(span, what)| {
            let location = match span.file {
                ROOT => Location::new(uri.clone(), range_of(&self.text, *span)),
                _ => self.location(*span, workspace)?,
            };
            Some(DiagnosticRelatedInformation { location, message: what.clone() })
        });
        let severity = match d.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
        };
        let range = if d.span.file == ROOT { range_of(&self.text, d.span) } else { Range::default() };
        lsp_types::Diagnostic {
            range,
            severity: Some(severity),
            code: Some(NumberOrString::String(d.code.to_string())),
            source: Some("weft".into()),
            message,
            related_information: Some(related.collect()),
            ..Default::default()
        }
    }

    /// The location of a span of the last text without syntax errors, or of a file that it uses.
    fn location(&self, span: Span, workspace: &Workspace) -> Option<Location> {
        let sources = &self.analysis.sources;
        let (name, text) = (sources.name(span.file)?, sources.text(span.file)?);
        let path = match name.strip_prefix("weft::") {
            Some(part) => (workspace.library_file)(part)?,
            None if span.file == ROOT => self.path.clone(),
            None => PathBuf::from(name),
        };
        Some(Location::new(uri_of(&path)?, range_of(text, span)))
    }

    /// The definition of the name at a position.
    pub(crate) fn definition(&self, at: Position, workspace: &Workspace) -> Option<Location> {
        self.location(self.definition_of(byte_at(&self.text, at))?, workspace)
    }

    fn definition_of(&self, byte: usize) -> Option<Span> {
        let (word, range) = word_at(&self.text, byte)?;
        let used = self.analysis.names.uses.iter().find(|(used, _)| {
            used.file == ROOT && range.contains(&(used.start as usize)) && used.end as usize == range.end
        });
        let local = self.variable_at(range.start);
        used.map(|(_, definition)| *definition).or(local).or_else(|| self.analysis.program.definition(word))
    }

    /// The variable whose definition begins at a byte.
    fn variable_at(&self, byte: usize) -> Option<Span> {
        let variables = self.analysis.names.variables.iter().map(|name| name.span);
        variables.into_iter().find(|span| span.file == ROOT && span.start as usize == byte)
    }

    /// The meaning of the name at a position, and the instructions of the accesses on its line.
    pub(crate) fn hover(&self, at: Position) -> Option<Hover> {
        let byte = byte_at(&self.text, at);
        let (word, range) = word_at(&self.text, byte)?;
        let definition = self.definition_of(byte);
        let mut parts = Vec::new();
        if let Some(kinds) = definition.and_then(|d| self.analysis.kinds.get(&(d.file, d.start))) {
            let bare =
                kinds.iter().map(|kind| kind.strip_prefix("a ").or(kind.strip_prefix("an ")).unwrap_or(kind));
            parts.extend(bare.map(|kind| format!("```weft\n{word}: {kind}\n```")));
        } else if let Some(head) = self.head_of(word) {
            parts.push(head);
        } else if let Some(builtin) = builtins().find(|builtin| builtin.name == word) {
            parts.push(format!("```weft\n{}\n```\n{}", builtin.signature, builtin.doc));
        }
        let accesses = self.analysis.accesses.iter().filter(|(line, _)| *line == at.line);
        parts.extend(accesses.map(|(_, access)| format!("access: `{}`", access.replace('\n', " "))));
        if parts.is_empty() {
            return None;
        }
        let contents = MarkupContent { kind: MarkupKind::Markdown, value: parts.join("\n\n") };
        let range = Range::new(position_at(&self.text, range.start), position_at(&self.text, range.end));
        Some(Hover { contents: HoverContents::Markup(contents), range: Some(range) })
    }

    /// The head of a function of the text or of a used file, with the comment above it.
    fn head_of(&self, name: &str) -> Option<String> {
        let analysis = &self.analysis;
        let function = analysis.program.functions().find(|f| &*f.name.name == name)?;
        let text = analysis.sources.text(function.span.file)?;
        let head = text.get(function.span.start as usize..function.span.end as usize)?;
        let above = text[..function.span.start as usize].lines().rev();
        let mut comment: Vec<&str> = above.map_while(|line| line.strip_prefix("//")).map(str::trim).collect();
        comment.reverse();
        Some(format!("```weft\n{head}\n```\n{}", comment.join("\n")).trim_end().to_owned())
    }

    /// The possible completions at a position: fields and functions after a dot, and otherwise
    /// names, functions and keywords.
    pub(crate) fn completion(&self, at: Position) -> Vec<CompletionItem> {
        let byte = byte_at(&self.text, at);
        let start = word_at(&self.text, byte).map_or(byte, |(_, range)| range.start);
        let mut items: BTreeMap<String, CompletionItem> = BTreeMap::new();
        let mut add = |name: &str, kind, detail: &str, doc: &str| {
            let item = CompletionItem {
                label: name.to_owned(),
                kind: Some(kind),
                detail: (!detail.is_empty()).then(|| detail.to_owned()),
                documentation: (!doc.is_empty()).then(|| Documentation::String(doc.to_owned())),
                ..Default::default()
            };
            items.entry(name.to_owned()).or_insert(item);
        };
        let before = self.text[..start].trim_end();
        let names = &self.analysis.names;
        let method = before.ends_with('.') && !before.ends_with("..");
        if method {
            let tuple = word_at(&self.text, before.len() - 1).map_or("", |(word, _)| word);
            for (_, fields) in names.records.iter().filter(|(name, _)| &*name.name == tuple) {
                fields.iter().for_each(|field| add(field, CompletionItemKind::FIELD, "", ""));
            }
        } else {
            self.names_in_item(byte)
                .into_iter()
                .for_each(|name| add(name, CompletionItemKind::VARIABLE, "", ""));
            for constant in self.analysis.program.constants() {
                add(&constant.name.name, CompletionItemKind::CONSTANT, "", "");
            }
            keywords().chain(PLACED_WORDS.iter().copied()).for_each(|word| {
                add(word, CompletionItemKind::KEYWORD, "", "");
            });
        }
        for function in self.analysis.program.functions() {
            let params: Vec<_> = function.params.iter().map(|param| &*param.name.name).collect();
            let detail = format!("{}({})", function.name, params.join(", "));
            add(&function.name.name, CompletionItemKind::FUNCTION, &detail, "");
        }
        for Builtin { name, signature, doc, .. } in builtins() {
            add(name, CompletionItemKind::FUNCTION, signature, doc);
        }
        items.into_values().collect()
    }

    /// The variables of the last text without syntax errors whose names also occur in the current
    /// text before this byte, in the same function or kernel.
    fn names_in_item(&self, byte: usize) -> Vec<&str> {
        let starts = ["\nfn ", "\nkernel ", "\nreference "];
        let before = &self.text[..byte];
        let item = starts.iter().filter_map(|start| before.rfind(start)).max().unwrap_or(0);
        let belongs = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words: Vec<&str> = before[item..].split(|c| !belongs(c)).collect();
        let variables = self.analysis.names.variables.iter().map(|name| &*name.name);
        variables.filter(|name| words.contains(name)).collect()
    }

    /// The edit that formats the text; none for a text with syntax errors.
    pub(crate) fn formatting(&self) -> Vec<TextEdit> {
        match format(ROOT, &self.text) {
            Ok(formatted) if formatted != self.text => {
                let end = position_at(&self.text, self.text.len());
                vec![TextEdit::new(Range::new(Position::new(0, 0), end), formatted)]
            }
            _ => Vec::new(),
        }
    }

    /// The edits that apply the helps of errors in a range.
    pub(crate) fn actions(&self, uri: &Uri, range: Range) -> Vec<CodeAction> {
        let (start, end) = (byte_at(&self.text, range.start), byte_at(&self.text, range.end));
        let within = |d: &&Diagnostic| {
            d.span.file == ROOT && d.span.start as usize <= end && d.span.end as usize >= start
        };
        let fixes = self.found.iter().filter(within).filter_map(|d| Some((d, self.fix(d)?)));
        let action = |(d, edit): (&Diagnostic, TextEdit)| CodeAction {
            title: d.help.clone().unwrap_or_default(),
            kind: Some(CodeActionKind::QUICKFIX),
            edit: Some(WorkspaceEdit::new([(uri.clone(), vec![edit])].into())),
            is_preferred: Some(true),
            ..Default::default()
        };
        fixes.map(action).collect()
    }

    /// The edit that the help of an error describes, if it is one.
    fn fix(&self, d: &Diagnostic) -> Option<TextEdit> {
        let help = d.help.as_deref()?;
        let quoted =
            |before: &str, after: &str| help.strip_prefix(before)?.strip_suffix(after).map(str::to_owned);
        if let Some(name) = quoted("did you mean `", "`?") {
            return Some(TextEdit::new(range_of(&self.text, d.span), name));
        }
        if help.starts_with("end `") && help.ends_with("with `;`") {
            let end = position_at(&self.text, d.span.start as usize);
            return Some(TextEdit::new(Range::new(end, end), ";".into()));
        }
        let name = quoted("declare it with `let mut ", "`")?;
        let used = self.definition_of(d.span.start as usize)?;
        let declared = self.text.get(..used.start as usize)?.trim_end().ends_with("let")
            && self.text.get(used.start as usize..used.end as usize) == Some(&name);
        let start = position_at(&self.text, used.start as usize);
        (declared && used.file == ROOT).then(|| TextEdit::new(Range::new(start, start), "mut ".into()))
    }
}

/// The path of the file at an address, if it is a file of this machine.
pub(crate) fn file_path(uri: &Uri) -> PathBuf {
    path_of(uri).unwrap_or_else(|| Path::new(uri.as_str()).to_owned())
}
