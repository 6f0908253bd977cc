//! The bytes between PEs as a matrix.

use crate::page::{Shown, bytes, missing};
use crate::study::Run;
use maud::{Markup, html};

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let run = match &kernel.study.run {
        Ok(run) => run,
        Err(why) => {
            return missing("The kernel did not run on simulated PEs, so there is no traffic to show.", why);
        }
    };
    let n = run.replay.pes;
    let stats = &run.examined.stats;
    let between: Vec<Vec<u64>> = (0..n)
        .map(|from| {
            let library = |to: usize| stats.nvshmem.links.get(from * n + to).copied().unwrap_or(0);
            let of = |to: usize| if from == to { 0 } else { stats.link(n, from, to) + library(to) };
            (0..n).map(of).collect()
        })
        .collect();
    let switch = stats.switch_ports(n);
    let in_switch = switch.iter().any(|port| port.out + port.into > 0);
    let max = between.iter().flatten().copied().chain(switch.iter().flat_map(|p| [p.out, p.into]));
    let max = max.max().unwrap_or(0);
    html! {
        (setting(run))
        @if max == 0 && run.examined.error.is_some() {}
        @else if max == 0 { p.lead { "No PE sent data to another PE." } }
        @else {
            p.lead { "Bytes of the last launch, from the PE of the row to the PE of the column: loads, stores, atomics and "
                "NVSHMEM's functions" @if in_switch { ", and the bytes that multimem instructions sent through the switch" } "." }
            div.scroll {
                table.matrix {
                    thead { tr {
                        th { "from \\ to" }
                        @for to in 0..n { th scope="col" { "PE " (to) } }
                        @if in_switch { th scope="col" { "switch" } }
                    } }
                    tbody {
                        @for (from, row) in between.iter().enumerate() {
                            tr {
                                th scope="row" { "PE " (from) }
                                @for (to, count) in row.iter().enumerate() { (cell(*count, max, from == to)) }
                                @if in_switch { (cell(switch[from].out, max, false)) }
                            }
                        }
                        @if in_switch {
                            tr {
                                th scope="row" { "switch" }
                                @for port in &switch { (cell(port.into, max, false)) }
                                td.none {}
                            }
                        }
                    }
                }
            }
            (operations(run))
        }
    }
}

fn cell(count: u64, max: u64, own: bool) -> Markup {
    let heat = 100.0 * count as f64 / max.max(1) as f64;
    html! {
        @if own { td.none { "\u{b7}" } }
        @else if count == 0 { td.zero { "0" } }
        @else { td.heat style={ "--heat:" (format!("{heat:.0}")) "%" } title={ (count) " bytes" } { (bytes(count)) } }
    }
}

/// The instructions and functions that moved the bytes.
fn operations(run: &Run) -> Markup {
    let stats = &run.examined.stats;
    let instructions = stats.opcodes.iter().filter(|o| o.mnemonic.starts_with("multimem."));
    let instructions: Vec<_> = instructions.map(|o| (&o.mnemonic, o.lanes)).collect();
    let calls: Vec<_> = stats.nvshmem.calls.iter().map(|(name, count)| (name, *count)).collect();
    html! {
        @if !(instructions.is_empty() && calls.is_empty()) {
            div.scroll { table {
                thead { tr { th { "Operation" } th { "Executions, all PEs together" } } }
                tbody {
                    @for (name, count) in instructions.iter().chain(&calls) {
                        tr { td { code { (name) } } td.number { (count) } }
                    }
                }
            } }
        }
    }
}

/// The sizes of the run that the traffic and the timeline come from.
pub(crate) fn setting(run: &Run) -> Markup {
    let replay = &run.replay;
    let defines = replay.defines.iter().map(|(name, v)| format!("{name}={}", weft_run::show(*v)));
    let parameters: Vec<_> =
        defines.chain(replay.args.iter().map(|(name, v)| format!("{name}={v}"))).collect();
    html! {
        p.lead {
            "A launch on " (replay.pes) " simulated PEs, " (replay.lowering.name()) " lowering"
            @if !parameters.is_empty() { ", with " code { (parameters.join(" ")) } }
            ". Sizes that are not given with " code { "-D" } " or " code { "--arg" } " have small values that the kernel accepts."
        }
        @if let Some(error) = &run.examined.error {
            div.missing { p { "The launch did not finish." } pre { (error) } }
        }
    }
}
