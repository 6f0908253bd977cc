//! Machine-readable reports: JSON in warpweft's own format, and SARIF 2.1.0 (OASIS, Static Analysis
//! Results Interchange Format).

use super::{Access, Finding, Replay, Report};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weft::CompileError;
use weft::codes::Page;
use weft_ir::diag::{Severity, Span};
use weft_lang::source::SourceMap;

/// The schema that the SARIF standard names.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The line, the column, and the column after the last character, all counted from 1.
struct Region {
    file: String,
    line: u32,
    column: u32,
    end_line: u32,
    end_column: u32,
}

impl Region {
    fn of(sources: &SourceMap, span: Span) -> Option<Region> {
        let start = sources.line_column(span)?;
        let end = sources.line_column(Span { start: span.end, ..span })?;
        Some(Region {
            file: sources.name(span.file)?.to_owned(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
        })
    }

    fn json(&self) -> Value {
        json!({
            "file": self.file, "line": self.line, "column": self.column,
            "end_line": self.end_line, "end_column": self.end_column,
        })
    }

    /// Converts it to SARIF's physical location.
    fn physical(&self) -> Value {
        json!({
            "artifactLocation": { "uri": uri(&self.file) },
            "region": {
                "startLine": self.line, "startColumn": self.column,
                "endLine": self.end_line, "endColumn": self.end_column,
            },
        })
    }
}

/// Makes SARIF's physical location of a whole file.
fn whole(file: &str) -> Value {
    json!({ "artifactLocation": { "uri": uri(file) } })
}

/// A document of SARIF 2.1.0 with these results, whose rules are the pages of these codes.
fn document(codes: &BTreeSet<&str>, results: Vec<Value>, properties: Value) -> String {
    let rules = codes.iter().map(|code| match Page::find(code) {
        Some(p) => json!({
            "id": code,
            "shortDescription": { "text": p.title },
            "fullDescription": { "text": p.explanation },
        }),
        None => json!({ "id": code }),
    });
    let value = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "weft check",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules.collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": properties,
        }],
    });
    format!("{value:#}\n")
}

/// Formats the error of a text that does not compile as the JSON of a report in which nothing ran.
pub fn uncompiled_json(error: &CompileError) -> String {
    let findings = error.diagnostics.iter().map(|d| {
        json!({
            "code": d.code.to_string(),
            "severity": word(d.severity),
            "message": d.message,
            "source": Region::of(error.sources(), d.span).map(|r| r.json()),
            "notes": [],
            "help": d.help.as_deref().unwrap_or_default(),
        })
    });
    let value = json!({
        "tool": "weft check",
        "version": env!("CARGO_PKG_VERSION"),
        "file": error.sources().name(0),
        "runs": 0,
        "cases": [],
        "findings": findings.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

/// Formats the error of a text that does not compile as SARIF 2.1.0.
pub fn uncompiled_sarif(error: &CompileError) -> String {
    let names: Vec<String> = error.diagnostics.iter().map(|d| d.code.to_string()).collect();
    let codes: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let file = error.sources().name(0).unwrap_or_default();
    let results = error.diagnostics.iter().zip(&names).map(|(d, code)| {
        let place = Region::of(error.sources(), d.span).map_or_else(|| whole(file), |r| r.physical());
        let help = d.help.as_deref().map(|help| format!("\n{help}")).unwrap_or_default();
        json!({
            "ruleId": code,
            "ruleIndex": codes.iter().position(|c| c == code),
            "level": word(d.severity),
            "message": { "text": format!("{}{help}", d.message) },
            "locations": [{ "physicalLocation": place }],
        })
    });
    document(&codes, results.collect(), json!({ "runs": 0 }))
}

/// Makes a URI reference of a path (RFC 3986). Other characters are percent-encoded, and an
/// absolute path gets a scheme.
fn uri(path: &str) -> String {
    let scheme = if path.starts_with('/') { "file://" } else { "" };
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&b);
    let encode = |b: u8| if allowed(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    scheme.chars().map(String::from).chain(path.bytes().map(encode)).collect()
}

impl Report {
    fn region(&self, span: Span) -> Option<Region> {
        Region::of(&self.sources, span)
    }

    /// Formats the report as indented JSON.
    pub fn json(&self) -> String {
        let value = json!({
            "tool": "weft check",
            "version": env!("CARGO_PKG_VERSION"),
            "file": self.file,
            "runs": self.runs,
            "cases": self.cases.iter().map(replay).collect::<Vec<_>>(),
            "findings": self.findings.iter().map(|f| self.finding(f)).collect::<Vec<_>>(),
        });
        format!("{value:#}\n")
    }

    fn finding(&self, f: &Finding) -> Value {
        json!({
            "code": f.code,
            "severity": word(f.severity),
            "message": f.message,
            "accesses": f.accesses.iter().map(|a| self.access(a)).collect::<Vec<_>>(),
            "notes": f.notes,
            "help": f.help,
            "count": f.count,
            "replay": replay(&f.replay),
            "command": self.command(f),
        })
    }

    fn access(&self, a: &Access) -> Value {
        let place = &a.place;
        let source = self.region(a.span).map(|r| r.json());
        let inlined_at = place.source.iter().skip(1);
        let inlined_at = inlined_at.map(|s| json!({ "file": s.file, "line": s.line, "column": s.column }));
        json!({
            "what": a.what,
            "pe": place.pe,
            "cta": place.cta,
            "thread": place.thread,
            "role": place.role.as_ref().map(|role| &*role.name),
            "kernel": place.kernel,
            "source": source,
            "inlined_at": inlined_at.collect::<Vec<_>>(),
            "ptx": { "line": place.ptx_line, "text": place.ptx_text },
        })
    }

    /// Formats the report as indented SARIF 2.1.0, with one result for each finding, whose rule is
    /// the finding's code.
    pub fn sarif(&self) -> String {
        let codes: BTreeSet<&str> = self.findings.iter().map(|f| f.code.as_str()).collect();
        let results = self.findings.iter().map(|f| {
            let index = codes.iter().position(|code| *code == f.code);
            self.result(f, index)
        });
        document(&codes, results.collect(), json!({ "runs": self.runs }))
    }

    fn result(&self, f: &Finding, rule: Option<usize>) -> Value {
        let text = std::iter::once(&f.message).chain(&f.notes).chain(Some(&f.help).filter(|h| !h.is_empty()));
        let text: Vec<_> = text.map(String::as_str).collect();
        let mut places: Vec<Value> = f.accesses.iter().map(|a| self.location(a)).collect();
        if places.is_empty() {
            places.push(json!({ "physicalLocation": whole(&self.file) }));
        }
        let related = places.split_off(1);
        json!({
            "ruleId": f.code,
            "ruleIndex": rule,
            "level": word(f.severity),
            "message": { "text": text.join("\n") },
            "locations": places,
            "relatedLocations": related,
            "occurrenceCount": f.count,
            "properties": { "replay": self.command(f) },
        })
    }

    fn location(&self, a: &Access) -> Value {
        let physical = self.region(a.span).map_or_else(|| whole(&self.file), |r| r.physical());
        let what = if a.what.is_empty() { a.who() } else { format!("{} {}", a.who(), a.what) };
        json!({
            "physicalLocation": physical,
            "logicalLocations": [{ "name": a.place.kernel, "kind": "function" }],
            "message": {
                "text": format!("{what} (PTX line {}: {})", a.place.ptx_line, a.place.ptx_text),
            },
        })
    }
}

fn replay(r: &Replay) -> Value {
    let defines = r.defines.iter().map(|(name, v)| (name.clone(), Value::from(weft_run::show(*v))));
    let args = r.args.iter().map(|(name, v)| (name.clone(), Value::from(v.to_string())));
    json!({
        "kernel": r.kernel,
        "sequence": r.sequence,
        "pes": r.pes,
        "seed": r.seed,
        "defines": defines.collect::<Value>(),
        "args": args.collect::<Value>(),
        "lowering": r.lowering.name(),
        "transport": r.transport.name(),
        "node": r.node,
        "grid": r.grid,
        "launches": r.launches,
        "overlap": r.overlap,
    })
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}
