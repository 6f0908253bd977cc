//! Reports as text for people.

use super::{Finding, Report};
use std::collections::BTreeSet;
use weft_ir::diag::Span;
use weft_lang::render::{Color, Message, render_message};

impl Report {
    /// Formats every finding with the locations in the kernel's text, and a summary of the runs.
    pub fn text(&self, color: Color) -> String {
        let findings = self.findings.iter().map(|f| {
            let runs = if self.runs == 1 { "run" } else { "runs" };
            let again = format!(
                "found in {} of {} {runs}; to reproduce it:\n{}",
                f.count,
                self.runs,
                self.command(f)
            );
            self.paragraph(f, Some(again), color) + "\n"
        });
        findings.chain(Some(self.summary())).collect()
    }

    /// Formats only the findings, with the locations in the kernel's text.
    pub fn findings_text(&self, color: Color) -> String {
        self.findings.iter().map(|f| self.paragraph(f, None, color)).collect::<Vec<_>>().join("\n")
    }

    /// Formats a finding with its locations in the kernel's text.
    pub fn finding_text(&self, finding: &Finding, color: Color) -> String {
        self.paragraph(finding, None, color)
    }

    fn paragraph(&self, finding: &Finding, again: Option<String>, color: Color) -> String {
        let Finding { code, severity, message, accesses, notes, help, replay, .. } = finding;
        let mut places: Vec<(Span, String)> = Vec::new();
        let mut lines = Vec::new();
        for access in accesses {
            let who = access.who();
            let label = if access.what.is_empty() { who.clone() } else { format!("{who} {}", access.what) };
            let place = &access.place;
            if access.span.is_none() {
                lines.push(label);
            } else {
                places.push((access.span, label));
            }
            let ptx = format!("{who}: PTX line {}: {}", place.ptx_line, place.ptx_text.replace('\t', " "));
            // The excerpt shows the innermost location; the others are the calls that were inlined.
            let outer = match replay.ptx {
                Some(_) => &place.source[..],
                None => place.source.get(1..).unwrap_or_default(),
            };
            if replay.ptx.is_none() || access.span.is_none() {
                lines.push(ptx);
            }
            for (i, s) in outer.iter().enumerate() {
                let word =
                    if replay.ptx.is_some() && i == 0 { format!("{who}: from") } else { "inlined at".into() };
                lines.push(format!("{word} {s}"));
            }
        }
        lines.extend(notes.iter().cloned());
        lines.extend(again);
        let message = Message {
            severity: *severity,
            code,
            message,
            places: &places,
            notes: &lines,
            help: Some(help.as_str()).filter(|h| !h.is_empty()),
        };
        render_message(&message, &self.sources, color)
    }

    /// Returns the command that reproduces a finding.
    pub fn command(&self, finding: &Finding) -> String {
        let what = finding.replay.sequence.as_ref().unwrap_or(&self.file);
        format!("weft check {what} {}", finding.replay)
    }

    /// Summarises the runs and their result in a few lines.
    fn summary(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, text: String| out.push_str(&format!("{name:<13}{text}\n"));
        let list = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join("; ");
        line("kernels", list(self.cases.iter().map(|c| c.kernel.clone()).collect()));
        let pes: BTreeSet<usize> = self.cases.iter().map(|c| c.pes).collect();
        line("PEs", pes.iter().map(usize::to_string).collect::<Vec<_>>().join(", "));
        let variants = list(self.cases.iter().map(|c| c.variant()).filter(|v| !v.is_empty()).collect());
        if !variants.is_empty() {
            line("variants", variants);
        }
        let sizes = self.cases.iter().map(|c| c.parameters()).filter(|s| !s.is_empty());
        let sizes = list(sizes.collect());
        if !sizes.is_empty() {
            line("parameters", sizes);
        }
        line(
            "runs",
            format!("{}, {} launches each", self.runs, self.cases.first().map_or(0, |c| c.launches)),
        );
        let found = match self.findings.len() {
            0 => "nothing".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        line("found", found);
        out
    }
}
