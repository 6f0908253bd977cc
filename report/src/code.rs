//! The text beside IR, PTX and SASS, linked line by line.

use crate::highlight::{Language, line as highlighted};
use crate::lines::{Key, Line};
use crate::page::{Shown, missing};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// The least number of lines without code that are hidden together in a used file.
const FOLD: usize = 12;
/// The number of lines that stay visible before and after the hidden ones.
const AROUND: usize = 3;
/// The number of bytes of the widest access of a thread.
pub(crate) const WIDEST: u32 = 16;

pub(crate) fn section(kernel: &Shown<'_>) -> Markup {
    let study = kernel.study;
    html! {
        p.lead {
            "Point at a line to see the lines that it compiles to, or that it comes from. A click selects the line and moves the other panes to "
            "it. Escape clears the selection."
        }
        div.panes data-show="ptx" {
            div.tabs role="group" aria-label="Level" {
                @for (level, title) in [("ir", "IR"), ("ptx", "PTX"), ("sass", "SASS")] {
                    button type="button" data-tab=(level) aria-pressed=(level == "ptx") { (title) }
                }
            }
            (pane("source", "Source", source(kernel)))
            (pane("ir", "IR", listed(kernel, &kernel.levels.ir, Language::Ir)))
            (pane("ptx", "PTX", listed(kernel, &kernel.levels.ptx, Language::Ptx)))
            @match &study.listing {
                Ok(_) => (pane("sass", "SASS", listed(kernel, &kernel.levels.sass, Language::Sass))),
                Err(why) => (pane("sass", "SASS", missing(
                    "Machine code needs NVIDIA's ptxas and nvdisasm. `weft setup` fetches both.", why,
                ))),
            }
        }
    }
}

fn pane(name: &str, title: &str, body: Markup) -> Markup {
    html! {
        div.pane data-pane=(name) {
            h3 { (title) }
            div.lines tabindex="0" role="region" aria-label={ (title) " lines" } { (body) }
        }
    }
}

/// The lines of IR, PTX or SASS.
fn listed(kernel: &Shown<'_>, lines: &[Line], language: Language) -> Markup {
    // Findings name lines of the PTX.
    let id = |line: &Line| line.ptx.filter(|_| language == Language::Ptx);
    html! {
        @for line in lines {
            div.l id=[id(line).map(|n| format!("{}-p{n}", kernel.id))] data-k=[line.key.map(Key::text)]
                data-p=[line.ptx] style=[line.key.map(hue)] {
                b { (line.label) } code { (highlighted(&line.text, language)) }
            }
        }
    }
}

/// A colour that differs from that of the lines before and after.
fn hue(key: Key) -> String {
    format!("--h:{}", (key.line * 137 + key.file * 67) % 360)
}

/// The kernel's own file, and those of its used files that contain code of the kernel.
fn source(kernel: &Shown<'_>) -> Markup {
    let keys = kernel.levels.keys();
    let sources = kernel.study.compiled.sources();
    let widths = widths(kernel);
    let used = keys.iter().map(|key| key.file).chain([0]).collect::<BTreeSet<_>>();
    html! {
        @for file in used {
            div.file { (sources.name(file).unwrap_or_default()) }
            @let text: Vec<&str> = sources.text(file).unwrap_or_default().lines().collect();
            @let hidden = hidden(&text, file, &keys);
            @for (line, number) in text.iter().zip(1u32..) {
                @let key = Key { file, line: number };
                @match hidden.get(&number) {
                    Some(0) => {}
                    Some(count) => { div.fold { (count) " lines without code" } }
                    None => (source_line(kernel, line, key, keys.contains(&key), widths.get(&key)))
                }
            }
        }
    }
}

fn source_line(kernel: &Shown<'_>, text: &str, key: Key, linked: bool, width: Option<&u32>) -> Markup {
    let at = Some(key).filter(|_| linked);
    html! {
        div.l id={ (kernel.id) "-" (key.file) "-" (key.line) } data-k=[at.map(Key::text)] style=[at.map(hue)] {
            b { (key.line) }
            @match width {
                Some(bytes) => {
                    span.width.narrow[*bytes < WIDEST] title="Bytes that the instruction of the access moves for each thread" {
                        (bytes) " B"
                    }
                }
                None => { span.width {} }
            }
            code { (highlighted(text, Language::Weft)) }
        }
    }
}

/// The lines of a used file that are hidden. The first line of a hidden range maps to the number of
/// its lines, and the others to 0. The kernel's own file is shown whole.
fn hidden(text: &[&str], file: u32, keys: &BTreeSet<Key>) -> BTreeMap<u32, usize> {
    let mut hidden = BTreeMap::new();
    if file == 0 {
        return hidden;
    }
    let lines = text.len() as u32;
    let linked = keys.iter().filter(|key| key.file == file).map(|key| key.line);
    let mut last = 0;
    for next in linked.chain([lines + 1]) {
        let margin = |edge: bool| if edge { 0 } else { AROUND as u32 };
        let (first, end) = (last + 1 + margin(last == 0), next.saturating_sub(margin(next > lines)));
        let count = end.saturating_sub(first) as usize;
        if count >= FOLD {
            hidden.insert(first, count);
            hidden.extend((first + 1..end).map(|line| (line, 0)));
        }
        last = next;
    }
    hidden
}

/// The bytes of the narrowest access of each line.
fn widths(kernel: &Shown<'_>) -> BTreeMap<Key, u32> {
    let mut widths = BTreeMap::new();
    for access in &kernel.study.compiled.report.accesses {
        let bytes = access.instrs.first().map(|instr| instr.bytes);
        if let Some((key, bytes)) = Key::of(kernel.study.compiled.sources(), access.span).zip(bytes) {
            let least = widths.entry(key).or_insert(bytes);
            *least = bytes.min(*least);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stretches_without_code_are_left_out_of_used_files() {
        let text = vec![""; 60];
        let keys = BTreeSet::from([Key { file: 1, line: 20 }, Key { file: 1, line: 30 }]);
        assert!(hidden(&text, 0, &keys).is_empty());
        let hidden = hidden(&text, 1, &keys);
        assert_eq!(hidden.iter().filter(|(_, n)| **n > 0).collect::<Vec<_>>(), [(&1, &16), (&34, &27)]);
        assert_eq!(hidden.len(), 16 + 27);
    }
}
