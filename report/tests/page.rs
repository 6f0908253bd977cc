//! The structure of pages: every section, and links between a kernel's text, IR, PTX and SASS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use scraper::{ElementRef, Html, Selector};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use weft::KernelFile;
use weft::tools::Tool;
use weft_check::CheckOptions;
use weft_report::{Options, page};

const SECTIONS: [&str; 7] = ["code", "accesses", "resources", "layouts", "traffic", "timeline", "findings"];

fn select(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

fn all<'p>(page: &'p Html, selector: &str) -> Vec<ElementRef<'p>> {
    page.select(&select(selector)).collect()
}

fn text(element: ElementRef<'_>) -> String {
    element.text().collect()
}

fn options(pes: usize) -> Options {
    let mut options = Options::new(CheckOptions::new("sm_90a".parse().unwrap()), pes);
    options.check.seeds = 1;
    options.patience = Duration::ZERO;
    options
}

fn read(name: &str) -> (String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    (name.to_owned(), std::fs::read_to_string(root.join(name)).unwrap())
}

fn shown(name: &str, text: &str, pes: usize) -> Html {
    let file = KernelFile::parse(name, text).unwrap();
    Html::parse_document(&page(&file, &options(pes), &|_| ()).unwrap().text)
}

/// The keys of linked lines of a pane in a kernel.
fn keys(page: &Html, kernel: usize, pane: &str) -> BTreeSet<String> {
    let lines = all(page, &format!("#k{kernel} [data-pane={pane}] .l[data-k]"));
    lines.into_iter().map(|line| line.value().attr("data-k").unwrap().to_owned()).collect()
}

/// `file:line` of every instruction of PTX, found without the page's own reader.
fn places(ptx: &str) -> BTreeSet<String> {
    let numbers = ptx.lines().filter_map(|l| l.trim().strip_prefix(".file")?.trim().split_once(' '));
    let names: BTreeMap<_, _> = numbers.map(|(n, name)| (n, name.trim().trim_matches('"'))).collect();
    let mut at = None;
    let mut found = BTreeSet::new();
    for line in ptx.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix(".loc") {
            let mut words = rest.split_whitespace();
            let (file, line) = (words.next().unwrap(), words.next().unwrap());
            at = (line != "0").then(|| format!("{}:{line}", names[file]));
        } else if line.ends_with(';') && !line.starts_with('.') {
            found.extend(at.clone());
        }
    }
    found
}

/// Whatever the kernel: each section is there, every source line that has PTX is linked, and links lead somewhere.
#[test]
fn every_line_with_ptx_has_a_link() {
    for (name, pes) in [
        ("examples/allreduce_two_shot.weft", 4),
        ("examples/11_put_signal.weft", 2),
        ("examples/13_halo_exchange.weft", 2),
        ("examples/16_pipeline.weft", 2),
        ("examples/gemm.weft", 1),
    ] {
        let (name, text) = read(name);
        let file = KernelFile::parse(&name, &text).unwrap();
        let page = shown(&name, &text, pes);
        for (number, head) in file.heads().iter().enumerate() {
            let sections = all(&page, &format!("#k{number} section"));
            let names: Vec<_> = sections.iter().map(|s| s.value().attr("data-section").unwrap()).collect();
            assert_eq!(names, SECTIONS, "{name}");

            let mut compile = options(pes).check.compile;
            compile.kernel = Some(head.name.to_string());
            compile.defines = file.heads()[number].generics.iter().filter(|(.., has)| !has).fold(
                compile.defines,
                |mut defines, (name, ..)| {
                    // The largest case that the checks chose is shown, and names its parameters.
                    let more = all(&page, &format!("#k{number} .tile .more"));
                    let value = text_after(&more[0].text().collect::<String>(), name);
                    defines.insert(name.to_string(), weft::Define::parse(&value).unwrap());
                    defines
                },
            );
            let compiled = file.compile(&compile).unwrap();
            let sources = compiled.sources();
            let wanted: BTreeSet<_> = places(&compiled.ptx)
                .iter()
                .filter_map(|place| place.rsplit_once(':'))
                .map(|(file, line)| format!("{}:{line}", sources.find(file).unwrap()))
                .collect();
            assert!(wanted.len() > 2, "{name}: {wanted:?}");
            let (source, ptx) = (keys(&page, number, "source"), keys(&page, number, "ptx"));
            assert_eq!(ptx, wanted, "{name}: lines of the PTX");
            assert!(source.is_superset(&ptx), "{name}: {:?}", ptx.difference(&source).collect::<Vec<_>>());
            assert!(source.is_superset(&keys(&page, number, "ir")), "{name}: lines of the IR");
        }
        let ids: BTreeSet<_> = all(&page, "[id]").iter().map(|e| e.value().attr("id").unwrap()).collect();
        for link in all(&page, "a[href]") {
            let href = link.value().attr("href").unwrap();
            let target = href.strip_prefix('#').unwrap_or_else(|| panic!("{name}: {href} leaves the page"));
            assert!(ids.contains(target), "{name}: {href} leads nowhere");
        }
    }
}

/// The value in `NAME=VALUE` of a list.
fn text_after(list: &str, name: &str) -> String {
    let pairs = list.split(", ").filter_map(|pair| pair.split_once('='));
    pairs.filter(|(n, _)| *n == name).map(|(_, value)| value.to_owned()).next().unwrap()
}

/// Each instruction of the machine code knows the line of PTX that it is from.
#[test]
fn machine_code_is_linked_or_the_page_says_what_is_missing() {
    let (name, text_of_file) = read("examples/allreduce_two_shot.weft");
    let page = shown(&name, &text_of_file, 2);
    let sass = all(&page, "[data-pane=sass] .l[data-p]");
    if Tool::Ptxas.find().is_err() || Tool::Nvdisasm.find().is_err() {
        let said = all(&page, "[data-pane=sass] .missing");
        assert!(sass.is_empty() && text(said[0]).contains("weft setup"));
        return;
    }
    let ptx: BTreeMap<_, _> = all(&page, "[data-pane=ptx] .l[data-p]")
        .into_iter()
        .map(|line| (line.value().attr("data-p").unwrap(), text(line)))
        .collect();
    // Reading the thread's index is one instruction in both.
    let reads: Vec<_> = sass.iter().filter(|line| text(**line).contains("SR_TID.X")).collect();
    assert!(!reads.is_empty());
    for line in reads {
        let from = &ptx[line.value().attr("data-p").unwrap()];
        assert!(from.contains("%tid.x"), "{} is from {from}", text(*line));
    }
    assert!(!text(all(&page, ".tiles")[0]).contains("Registers a thread0"));
}

#[test]
fn traffic_is_a_matrix_of_the_bytes_that_went() {
    // Each PE puts 64 numbers to the next one.
    let kernel = "
        kernel ring(x: symm<f32, (64):(1)>, y: symm<f32, (64):(1)>, team: team) block(64) grid(1) {
            let next = peer(y, (my_pe(team) + 1) % n_pes(team), team);
            next[thread_idx()] = x[thread_idx()];
        }";
    let page = shown("ring.weft", kernel, 3);
    let rows = all(&page, ".matrix tbody tr");
    let cells = |row: ElementRef<'_>| row.select(&select("td")).map(text).collect::<Vec<_>>();
    let table: Vec<_> = rows.into_iter().map(cells).collect();
    let dot = "\u{b7}";
    assert_eq!(table, [[dot, "256 B", "0"], ["0", dot, "256 B"], ["256 B", "0", dot]]);
    assert_eq!(all(&page, "[data-section=timeline] .pe").len(), 3);
    assert!(!all(&page, "[data-section=timeline] rect.runs").is_empty());
}

#[test]
fn findings_lead_to_their_lines() {
    let kernel = "
kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) grid(2)
    computes(copy(x, out))
{
    out[0] = to<f32>(block_idx());
}";
    let page = shown("race.weft", kernel, 1);
    let found = all(&page, "[data-section=findings] .finding");
    assert!(!found.is_empty());
    let link = all(&page, "[data-section=findings] a[data-go]");
    assert_eq!(link[0].value().attr("data-go"), Some("0:5"));
    assert!(text(found[0]).contains("weft check race.weft"), "{}", text(found[0]));
}

#[test]
fn a_kernel_that_cannot_run_says_why() {
    let waits = "
        kernel k(x: global<f32, (64):(1)>) block(32) grid(1) {
            loop { if load<relaxed, gpu>(x[0]) > 100.0 { break; } }
        }";
    let mut options = options(1);
    options.check.step_limit = Some(10_000);
    let made = |text: &str| {
        let file = KernelFile::parse("k.weft", text).unwrap();
        Html::parse_document(&page(&file, &options, &|_| ()).unwrap().text)
    };
    let ended = made(waits);
    let said = all(&ended, "[data-section=traffic] .missing");
    assert!(text(said[0]).contains("did not finish"), "{}", text(said[0]));
    assert!(!all(&ended, "[data-section=findings] .finding").is_empty());

    // What keeps the checks from running keeps the page from having a run, and every section says so.
    let needs = "
        kernel k(a: f32, x: global<f32, (64):(1)>) block(64) grid(1) { x[thread_idx()] = x[thread_idx()] * a; }";
    let none = made(needs);
    for section in ["traffic", "timeline", "findings"] {
        let said = all(&none, &format!("[data-section={section}] .missing"));
        assert!(text(said[0]).contains("give --arg a=VALUE"), "{section}: {}", text(said[0]));
    }
    assert!(!keys(&none, 0, "ptx").is_empty());
}

/// A value for one kernel of a file is none of the others', and one that no kernel has is an error.
#[test]
fn each_kernel_gets_its_own_parameters() {
    let text_of_file = "
        kernel one<N: int>(a: f32, x: global<f32, (N):(1)>) block(32) grid(1) { x[0] = a; }
        kernel two<M: int = 64>(x: global<f32, (M):(1)>) block(32) grid(1) { x[thread_idx()] = 1.0; }";
    let mut options = options(1);
    options.check.compile.defines = [("N".into(), weft::Define::Int(96))].into();
    options.check.args = [("a".into(), weft::Define::Float(2.0).into())].into();
    let file = KernelFile::parse("k.weft", text_of_file).unwrap();
    let page = weft_report::page(&file, &options, &|_| ()).unwrap();
    assert_eq!(page.kernels, 2);
    let page = Html::parse_document(&page.text);
    assert!(all(&page, ".missing").iter().all(|m| text(*m).contains("ptxas")));
    let names: Vec<_> = all(&page, ".tile.wide .more").into_iter().map(text).collect();
    assert_eq!(names, ["N=96", "M=64"]);
    assert_eq!(all(&page, "#kernel option").len(), 2);

    options.check.compile.defines = [("P".into(), weft::Define::Int(96))].into();
    assert!(weft_report::page(&file, &options, &|_| ()).is_err());
}
