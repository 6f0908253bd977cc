//! The layouts of a kernel's tensors, with pictures of which thread holds which element.

use crate::lines::Key;
use crate::page::Shown;
use crate::tile::{Accessed, Grid, Known, accessed, accumulators, banks, held, in_shared};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeSet;
use weft_ir::diag::Span;
use weft_ir::{Kernel, TypeRef, ValueType};
use weft_lang::elaborate::Define;

/// The greatest number of pictures of accesses.
const PICTURES: usize = 12;

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let Some(own) = kernel.study.kernel() else { return html! {} };
    let tiles = distinct(accesses(kernel, own));
    html! {
        (tensors(kernel, own))
        @if tiles.is_empty() {
            p.lead { "The offsets of all accesses are unknown before the launch, so there is no tile of threads to draw." }
        } @else {
            h3 { "Threads and values" }
            p.lead { "Each cell is an element in memory, with the thread (T) that holds it and its number among the thread's values (V), in "
                "the first CTA of PE 0, in the first iteration of each loop." }
        }
        div.pictures {
            @for (tile, spans) in tiles.iter().take(PICTURES) { (of_access(kernel, tile, spans)) }
        }
        @if tiles.len() > PICTURES { p.quiet { (tiles.len() - PICTURES) " more accesses have tiles of their own." } }
        (shared(kernel, own))
        (matrices(own))
    }
}

/// The accesses of the kernel, as far as they are known with the parameters of its run.
fn accesses(kernel: &Shown<'_>, own: &Kernel) -> Vec<Accessed> {
    let replay = kernel.study.run.as_ref().ok().map(|run| &run.replay);
    let parameter = |name: &str| match replay?.args.get(name)?.first {
        Define::Int(n) => Some(n),
        _ => None,
    };
    accessed(own, &Known { parameter: &parameter, pes: replay.map_or(1, |r| r.pes as i64) })
}

/// Merges equal tiles, and collects their places in the text.
fn distinct(all: Vec<Accessed>) -> Vec<(Accessed, Vec<Span>)> {
    let mut found: Vec<(Accessed, Vec<Span>)> = Vec::new();
    for one in all {
        let same = |other: &Accessed| Accessed { span: one.span, op: one.op.clone(), ..other.clone() } == one;
        match found.iter_mut().find(|(other, _)| same(other)) {
            Some((_, spans)) if spans.contains(&one.span) => {}
            Some((_, spans)) => spans.push(one.span),
            None => found.push((one.clone(), vec![one.span])),
        }
    }
    found
}

fn of_access(kernel: &Shown<'_>, tile: &Accessed, spans: &[Span]) -> Markup {
    let keys: BTreeSet<_> =
        spans.iter().filter_map(|span| Key::of(kernel.study.compiled.sources(), *span)).collect();
    let title = format!("{} of {}", tile.op, tile.tensor);
    html! {
        (picture(&title, &tile.grid, html! {
            b { (tile.tensor) } " at " @for (i, key) in keys.iter().enumerate() { @if i > 0 { ", " } (kernel.link(*key)) }
            ". A row has " (tile.line) " elements."
            @if let Some((touched, least)) = tile.sectors {
                " A warp touches " (touched) " sectors of 32 bytes"
                @if touched > least { ", where " (least) " would be enough for the bytes." } @else { ", the fewest possible." }
            }
        }))
    }
}

/// A grid with its caption.
fn picture(title: &str, grid: &Grid, caption: Markup) -> Markup {
    html! {
        @if let Some(svg) = grid.svg(title) {
            figure {
                div.scroll { (PreEscaped(svg)) }
                figcaption { (caption) @if let Some(cut) = grid.cut() { " " (cut) } }
            }
        }
    }
}

/// The parameters and the tensors in shared memory.
fn tensors(kernel: &Shown<'_>, own: &Kernel) -> Markup {
    let roles = kernel.study.compiled.tensor_roles(0);
    html! {
        div.scroll { table {
            thead { tr { th { "Tensor" } th { "Type" } th { "Used as" } } }
            tbody {
                @for (param, role) in own.head.params.iter().zip(roles) {
                    @if let (Some(role), TypeRef::Tensor(_)) = (role, param.ty.view()) {
                        tr {
                            td { (kernel.at(param.span)) " " b { (param.name) } }
                            td { code { (kernel.readable(&param.ty.to_string())) } }
                            td { (role) }
                        }
                    }
                }
                @for (name, tensor, span) in in_shared(own) {
                    tr {
                        td { (kernel.at(span)) " " b { (name) } }
                        td { code { (TypeRef::Tensor(&std::sync::Arc::new(tensor.clone()))) } }
                        td { "shared memory of a CTA" }
                    }
                }
            }
        } }
    }
}

/// The tensors in shared memory by banks.
fn shared(kernel: &Shown<'_>, own: &Kernel) -> Markup {
    let drawn: Vec<_> =
        in_shared(own).into_iter().filter_map(|(name, t, span)| Some((name, t, span, banks(t)?))).collect();
    html! {
        @if !drawn.is_empty() {
            h3 { "Banks of shared memory" }
            p.lead { "Each cell is a chunk of 16 bytes, with the group of four banks (B) that holds it. Eight chunks that are "
                "accessed together have no bank conflict if their groups differ." }
            div.pictures {
                @for (name, tensor, span, grid) in &drawn {
                    (picture(name, grid, html! {
                        b { (name) } " at " (kernel.at(*span)) ", " code { (tensor.layout) }
                        @if let Some(swizzle) = tensor.swizzle { ", swizzled by " code { (swizzle) } } @else { ", not swizzled" } "."
                    }))
                }
            }
        }
    }
}

/// The accumulators of matrix products.
fn matrices(own: &Kernel) -> Markup {
    let tiles = accumulators(own);
    html! {
        @if !tiles.is_empty() {
            h3 { "Accumulators" }
            p.lead { "Each cell is an element of the product, with the thread (T) and the register (V) that hold it." }
            div.pictures {
                @for tile in &tiles {
                    @if let Some(grid) = held(tile) {
                        (picture("accumulator", &grid, html! {
                            (tile.rows) " \u{d7} " (tile.cols) " of " code { (tile.elem) }
                            ", shared out over " (tile.over[0]) " \u{d7} " (tile.over[1]) " warpgroups."
                        }))
                    }
                }
            }
        }
    }
}
