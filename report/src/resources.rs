//! Registers by role, and shared memory by use.

use crate::page::{Shown, bytes};
use crate::study::Study;
use maud::{Markup, html};
use weft::tools::Usage;
use weft_ir::abi::shared_bytes;
use weft_ir::roles::REGISTERS;
use weft_ir::{Address, Operation};
use weft_passes::Fact;

/// A part of a bar: its name, its size, and a note.
struct BarSegment {
    name: String,
    size: u64,
    more: String,
}

/// The resource usage that ptxas reports for the kernel.
pub(crate) fn usage(study: &Study) -> Option<&Usage> {
    study.listing.as_ref().ok()?.usage.iter().find(|usage| usage.kernel == study.name)
}

/// The bytes of shared memory that a CTA has.
pub(crate) fn shared(study: &Study) -> u64 {
    study.compiled.low.kernels.first().map_or(0, shared_bytes)
}

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let study = kernel.study;
    let limit = u64::from(study.compiled.target.shared_limit());
    let (registers, buffers) = (registers(study), buffers(study));
    html! {
        h3 { "Registers of a CTA" }
        @if registers.is_empty() {
            p.lead { "Without ptxas, the number of registers of a thread is not known." }
        } @else {
            (bar(&registers, u64::from(REGISTERS), "registers", &|n| n.to_string()))
            @if let Some(fit) = fit(study) { p.lead { (fit) } }
        }
        h3 { "Shared memory of a CTA" }
        @if buffers.is_empty() {
            p.lead { "The kernel uses no shared memory." }
        } @else {
            (bar(&buffers, limit, "bytes", &bytes))
        }
    }
}

/// A bar of parts, relative to the capacity of a streaming multiprocessor.
fn bar(parts: &[BarSegment], limit: u64, unit: &str, show: &dyn Fn(u64) -> String) -> Markup {
    let sum: u64 = parts.iter().map(|part| part.size).sum();
    let percent = |size: u64| format!("{:.2}", 100.0 * size as f64 / limit.max(1) as f64);
    html! {
        div.bar role="img" aria-label={ (sum) " of " (limit) " " (unit) } {
            @for (i, part) in parts.iter().enumerate() {
                span.{ "c" (i % 8) } style={ "width:" (percent(part.size)) "%" }
                    title={ (part.name) ": " (show(part.size)) } {}
            }
        }
        div.scroll {
            table {
                tbody {
                    @for (i, part) in parts.iter().enumerate() {
                        tr {
                            td { span.swatch.{ "c" (i % 8) } {} " " (part.name) }
                            td.number { (show(part.size)) }
                            td { (part.more) }
                        }
                    }
                    tr.sum {
                        td { "all" }
                        td.number { (show(sum)) }
                        td { (percent(sum)) "% of the " (show(limit)) " that an SM can give a CTA" }
                    }
                }
            }
        }
    }
}

/// The registers of each role, or of all threads.
fn registers(study: &Study) -> Vec<BarSegment> {
    let roles = study.compiled.report.tiles.iter().filter_map(|tiled| match &tiled.fact {
        Fact::Role(name, first, threads, registers) => Some(BarSegment {
            name: name.to_string(),
            size: u64::from(threads * registers),
            more: format!("threads {first} to {}, {registers} registers each", first + threads - 1),
        }),
        _ => None,
    });
    let mut parts: Vec<BarSegment> = roles.collect();
    let all = study.compiled.report.tiles.iter().find_map(|tiled| match tiled.fact {
        Fact::Registers(all, _) => Some(u64::from(all)),
        _ => None,
    });
    let others = all.unwrap_or(0).saturating_sub(parts.iter().map(|part| part.size).sum());
    if others > 0 {
        parts.push(BarSegment {
            name: "others".into(),
            size: others,
            more: "threads without a named role".into(),
        });
    }
    if parts.is_empty()
        && let Some((usage, kernel)) = usage(study).zip(study.kernel())
    {
        let (threads, registers) = (kernel.threads(), usage.registers);
        let size = u64::from(threads * registers);
        let more = format!("threads 0 to {}, {registers} registers each", threads.saturating_sub(1));
        parts.push(BarSegment { name: "all threads".into(), size, more });
    }
    parts
}

/// The numbers of threads and CTAs of a streaming multiprocessor on targets where they are lower
/// than elsewhere (CUDA C++ Programming Guide, Technical Specifications per Compute Capability).
const SMALL: [(&[u16], u32, u32); 3] = [(&[86, 87], 1536, 16), (&[89], 1536, 24), (&[120, 121], 1536, 24)];
const USUAL: (u32, u32) = (2048, 32);

/// How many CTAs fit on a streaming multiprocessor at once.
fn fit(study: &Study) -> Option<String> {
    // The granularity in which registers are allocated to a warp, and the shared memory that the
    // system reserves in each CTA.
    const UNIT: u32 = 256;
    const RESERVED: u64 = 1024;
    let target = study.compiled.target;
    let small = SMALL.iter().find(|(numbers, ..)| numbers.contains(&target.number()));
    let (threads, ctas) = small.map_or(USUAL, |(_, threads, ctas)| (*threads, *ctas));
    let own = study.kernel()?.threads().max(1);
    let of_warp = (usage(study)?.registers * 32).next_multiple_of(UNIT);
    let memory = (u64::from(target.shared_limit()) + RESERVED) / (shared(study) + RESERVED);
    let limits = [
        (REGISTERS / (of_warp * own.div_ceil(32)).max(1), "its registers allow"),
        (memory as u32, "its shared memory allows"),
        (threads / own, "its threads allow"),
        (ctas, "the hardware allows"),
    ];
    let (least, who) = limits.into_iter().min_by_key(|(n, _)| *n)?;
    let s = if least == 1 { "" } else { "s" };
    Some(format!("An SM can hold {least} CTA{s} at once: {who} no more."))
}

/// The tensors and barriers in shared memory.
fn buffers(study: &Study) -> Vec<BarSegment> {
    let mut parts = Vec::new();
    let Some(kernel) = study.compiled.low.kernels.first() else { return parts };
    kernel.walk(&mut |_, inst| {
        if let Some(Address::Shared { name, bytes, align }) = inst.op.address() {
            let name = if name.is_empty() { "unnamed" } else { &**name };
            parts.push(BarSegment {
                name: name.into(),
                size: *bytes,
                more: format!("aligned to {align} bytes"),
            });
        }
    });
    parts
}
