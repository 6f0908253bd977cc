//! The page as a whole: its head, the selection of the kernel, and the sections.

use crate::lines::{Key, Levels};
use crate::study::Study;
use crate::{Options, access, code, findings, layouts, resources, timeline, traffic};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use weft::KernelFile;
use weft::tools::warning;
use weft_ir::diag::Span;
use weft_ir::text::readable;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A kernel, with the data that all its sections need.
pub(crate) struct Shown<'s> {
    pub study: &'s Study,
    pub levels: Levels,
    /// The prefix of the ids of its elements.
    pub id: String,
}

impl Shown<'_> {
    /// A link to a line of the text.
    pub fn link(&self, key: Key) -> Markup {
        let name = self.study.compiled.sources().name(key.file).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        html! {
            a.at href={ "#" (self.id) "-" (key.file) "-" (key.line) } data-go=(key.text()) { (name) ":" (key.line) }
        }
    }

    /// A link to the line at which a span begins.
    pub fn at(&self, span: Span) -> Markup {
        match Key::of(self.study.compiled.sources(), span) {
            Some(key) => self.link(key),
            None => html! { span.quiet { "generated code" } },
        }
    }

    /// Replaces symbols in a text by the names that the kernel's text uses.
    pub fn readable(&self, text: &str) -> String {
        self.study.kernel().map_or_else(|| text.to_owned(), |kernel| readable(kernel, text))
    }
}

/// A section: its name, which is part of its id, its title, and the function that writes it.
type Section = (&'static str, &'static str, fn(&Shown<'_>) -> Markup);

const SECTIONS: [Section; 7] = [
    ("code", "Code", code::section),
    ("accesses", "Accesses", access::section),
    ("resources", "Registers and memory", resources::section),
    ("layouts", "Layouts", layouts::section),
    ("traffic", "Traffic", traffic::section),
    ("timeline", "Timeline", timeline::section),
    ("findings", "Findings", findings::section),
];

/// The page of these kernels of a file.
pub(crate) fn write(file: &KernelFile, options: &Options, studies: &[Study]) -> String {
    let name = file.sources().name(0).unwrap_or_default();
    let shown = studies.iter().enumerate().map(|(i, study)| {
        let id = format!("k{i}");
        Shown { study, levels: Levels::of(study), id }
    });
    let shown: Vec<_> = shown.collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (name) " - weft report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header.top {
                    h1 { (name) }
                    @if shown.len() > 1 {
                        label.choice {
                            "Kernel "
                            select #kernel {
                                @for kernel in &shown { option value=(kernel.id) { (kernel.study.name) } }
                            }
                        }
                    }
                }
                main { @for kernel in &shown { (article(kernel, options)) } }
                footer {
                    "Made by " code { "weft report" } " " (env!("CARGO_PKG_VERSION"))
                    ". The page needs no network."
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn article(kernel: &Shown<'_>, options: &Options) -> Markup {
    let id = &kernel.id;
    html! {
        article.kernel id=(id) data-kernel=(kernel.study.name) {
            nav aria-label="Sections" {
                @for (name, title, _) in SECTIONS { a href={ "#" (id) "-" (name) } { (title) } }
            }
            (summary(kernel, options))
            @for (name, title, body) in SECTIONS {
                section id={ (id) "-" (name) } data-section=(name) {
                    h2 { (title) }
                    (body(kernel))
                }
            }
        }
    }
}

/// The kernel in a few numbers.
fn summary(kernel: &Shown<'_>, options: &Options) -> Markup {
    let study = kernel.study;
    let compiled = &study.compiled;
    let usage = resources::usage(study);
    let block = study.kernel().map_or(0, |k| k.threads());
    let defines = compiled.defines.first().into_iter().flatten();
    let defines: Vec<_> = defines.map(|(name, v)| format!("{name}={}", weft_run::show(*v))).collect();
    let remarks = study.listing.iter().flat_map(|listing| &listing.remarks);
    let remarks: Vec<_> = remarks.map(|remark| warning(remark, compiled.sources())).collect();
    let found = study.check.as_ref().map(|report| report.findings.len());
    html! {
        div.tiles {
            div.tile.wide { span.name { "Kernel" } strong { (study.name) } span.more { (defines.join(", ")) } }
            (tile("Compiled for", html! { (compiled.target) }, &format!("PTX {}, {} lowering", compiled.ptx_version, compiled.lowering)))
            (tile("Threads of a CTA", html! { (block) }, &format!("{} warps", block.div_ceil(32))))
            @if let Some(usage) = usage {
                (tile("Registers a thread", html! { (usage.registers) }, &match usage.spilled {
                    0 => "nothing spilled".to_owned(),
                    bytes => format!("{bytes} bytes spilled"),
                }))
            }
            (tile("Shared memory", html! { (bytes(resources::shared(study))) }, "of a CTA"))
            @match found {
                Ok(0) => (tile("Checks", html! { span.good { "nothing found" } }, &runs(study))),
                Ok(n) => (tile("Checks", html! { span.bad { (n) @if n == 1 { " finding" } @else { " findings" } } }, &runs(study))),
                Err(_) => (tile("Checks", html! { "not run" }, &format!("{} PEs", options.pes))),
            }
        }
        @for warning in compiled.warnings.iter().chain(&remarks) {
            p.note {
                (kernel.at(warning.span)) " " b { "warning[" (warning.code) "]" } " " (warning.message)
                @if let Some(help) = &warning.help { " " span.quiet { "Help: " (help) } }
            }
        }
    }
}

fn runs(study: &Study) -> String {
    study.check.as_ref().map_or_else(
        |_| String::new(),
        |report| match report.runs {
            1 => "in 1 run".to_owned(),
            n => format!("in {n} runs"),
        },
    )
}

fn tile(name: &str, value: Markup, more: &str) -> Markup {
    html! { div.tile { span.name { (name) } strong { (value) } span.more { (more) } } }
}

/// A number of bytes in the largest unit that leaves a whole number or one decimal digit.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value.fract() > 0.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Says why a section is empty, in the words of the program's message.
pub(crate) fn missing(what: &str, why: &str) -> Markup {
    html! { div.missing { p { (what) } pre { (why) } } }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_short() {
        let shown: Vec<_> = [0, 1023, 1024, 1536, 230_400, 5 << 20, 1 << 40].map(bytes).into();
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "225 KiB", "5 MiB", "1 TiB"]);
    }
}
