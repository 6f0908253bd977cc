//! The section with the findings of the checks.

use crate::lines::Key;
use crate::page::{Shown, missing};
use maud::{Markup, html};
use weft::codes::Page;
use weft_check::{Access, Finding, Report};

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let report = match &kernel.study.check {
        Ok(report) => report,
        Err(why) => return missing("The checks could not run this kernel.", why),
    };
    let runs = if report.runs == 1 { "run" } else { "runs" };
    html! {
        p.lead {
            @if report.findings.is_empty() { span.good { "No errors were found" } }
            @else { span.bad { (report.findings.len()) @if report.findings.len() == 1 { " finding" } @else { " findings" } } }
            " in " (report.runs) " simulated " (runs) " over the cases below. "
            code { "weft check" } " tries more seeds, sizes and numbers of PEs."
        }
        @for finding in &report.findings { (found(kernel, report, finding)) }
        details {
            summary { "Cases that ran" }
            ul.cases { @for case in &report.cases { li { code { (case) } } } }
        }
    }
}

fn found(kernel: &Shown<'_>, report: &Report, finding: &Finding) -> Markup {
    html! {
        div.finding {
            h3 { span.bad { (finding.code) } " " (finding.message) }
            @if !finding.accesses.is_empty() {
                ul { @for access in &finding.accesses { li { (place(kernel, access)) } } }
            }
            @for note in &finding.notes { p { (note) } }
            @if !finding.help.is_empty() { p { b { "Help: " } (finding.help) } }
            p.quiet { "Met in " (finding.count) " of " (report.runs) @if report.runs == 1 { " run" } @else { " runs" } ". To reproduce it:" }
            pre { (report.command(finding)) }
            @if let Some(page) = Page::find(&finding.code) {
                details { summary { (finding.code) ": " (page.title) } p { (page.explanation) } }
            }
        }
    }
}

/// The thread that accessed memory, and the place of the access in the text and in the PTX.
fn place(kernel: &Shown<'_>, access: &Access) -> Markup {
    // The sizes of a case may have given PTX other than the one shown, so only the text is linked.
    html! {
        (access.who()) " " (access.what) " "
        @if Key::of(kernel.study.compiled.sources(), access.span).is_some() { "at " (kernel.at(access.span)) " " }
        code { (access.place.ptx_text.trim()) }
    }
}
