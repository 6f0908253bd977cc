//! The widths of accesses, with their reasons, and how tiles, transfers, loops and waits were
//! compiled.

use crate::code::WIDEST;
use crate::page::Shown;
use maud::{Markup, html};
use std::fmt::Display;
use weft_ir::diag::Span;
use weft_passes::{Access, Cover, Fact};

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let report = &kernel.study.compiled.report;
    let accesses = counted(report.accesses.iter().collect(), |a, b| {
        Access { span: Span::NONE, ..(*a).clone() } == Access { span: Span::NONE, ..(*b).clone() }
            && a.span == b.span
    });
    let others = others(kernel);
    html! {
        @if accesses.is_empty() {
            p.lead { "The kernel has no access of a thread to the elements of a tensor." }
        } @else {
            p.lead { "Each access in the source, with the instructions that it compiles to and the reason why they are not wider. "
                "The widest instruction moves " (WIDEST) " bytes per thread." }
            div.scroll {
                table {
                    thead { tr {
                        th { "Line" } th { "Operation" } th { "Instructions" } th { "Width" } th { "Why" }
                    } }
                    tbody { @for (access, count) in accesses { (row(kernel, access, count)) } }
                }
            }
        }
        @if !others.is_empty() {
            h3 { "Tiles, transfers, loops and waits" }
            div.scroll {
                table {
                    thead { tr { th { "Line" } th { "Lowering" } } }
                    tbody {
                        @for ((span, text), count) in others {
                            tr { td { (kernel.at(span)) } td { (text) (times(count)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Merges equal neighbours, and counts them.
fn counted<T>(all: Vec<T>, same: impl Fn(&T, &T) -> bool) -> Vec<(T, usize)> {
    let mut counted: Vec<(T, usize)> = Vec::new();
    for one in all {
        match counted.iter_mut().find(|(other, _)| same(&one, other)) {
            Some((_, count)) => *count += 1,
            None => counted.push((one, 1)),
        }
    }
    counted
}

fn times(count: usize) -> Markup {
    html! { @if count > 1 { span.quiet { " (" (count) " times)" } } }
}

fn row(kernel: &Shown<'_>, access: &Access, count: usize) -> Markup {
    let bytes = access.instrs.first().map_or(0, |instr| instr.bytes);
    html! {
        tr {
            td { (kernel.at(access.span)) (times(count)) }
            td { (access.op) " of " (access.elements) @if access.elements == 1 { " element" } @else { " elements" } }
            td {
                @for instr in &access.instrs {
                    div {
                        @if instr.count == 0 { "for tails " } @else { (instr.count) " \u{d7} " }
                        code { (instr.name) }
                    }
                }
            }
            td.width-cell {
                meter min="0" max=(WIDEST) value=(bytes) { (bytes) }
                " " (bytes) " B"
            }
            td { (why(kernel, access)) }
        }
    }
}

/// The reason why an access is not wider, and the condition that is tested at run time.
fn why(kernel: &Shown<'_>, access: &Access) -> String {
    let cover = match access.cover {
        Cover::All => "No bounds need a test.",
        Cover::Whole => "Each instruction has one bounds test.",
        Cover::Cut => "A tail can shorten it.",
    };
    let narrow = access.narrow.as_ref().map(|why| sentence(&kernel.readable(&why.to_string())));
    let matrices =
        access.no_matrices.as_ref().map(|why| sentence(&format!("no whole matrices, because {why}")));
    narrow.into_iter().chain(matrices).chain([cover.to_owned()]).collect::<Vec<_>>().join(" ")
}

/// A clause as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// The notes on other operations, by place in the text.
fn others(kernel: &Shown<'_>) -> Vec<((Span, String), usize)> {
    let report = &kernel.study.compiled.report;
    let text = |text: &dyn Display| kernel.readable(&text.to_string());
    // Memory and registers have a section of their own.
    let tiles = report
        .tiles
        .iter()
        .filter(|t| !matches!(t.fact, Fact::Shared(..) | Fact::Role(..) | Fact::Registers(..)));
    let tiles = tiles.map(|t| (t.span, text(&t.fact)));
    let transfers = report.transfers.iter().map(|t| (t.span, text(t)));
    let loops = report.loops.iter().map(|l| {
        let why = l.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        (l.span, format!("loop: {} rounds in flight{}", l.rounds, kernel.readable(&why)))
    });
    counted(tiles.chain(transfers).chain(loops).collect(), |a, b| a == b)
}
