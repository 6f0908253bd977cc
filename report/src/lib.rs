//! The page of `weft report`: what is known about the kernels of a file, as one HTML file that needs no network.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weft::KernelFile;
//! use weft_check::CheckOptions;
//! let file = KernelFile::parse("twice.weft", "
//!     kernel twice<N: int = 256>(x: global<f32, (N):(1)>) block(128) {
//!         let mine = partition(x, threads());
//!         for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * 2; }
//!     }")?;
//! let mut options = weft_report::Options::new(CheckOptions::new("sm_90a".parse()?), 1);
//! options.check.seeds = 1;
//! let page = weft_report::page(&file, &options, &|_| ())?;
//! assert!(page.text.contains("ld.global"));
//! # Ok(()) }
//! ```
//!
//! [`page`] gathers what the compiler, the assembler, the checks and a simulated run say of each kernel (`study`), and
//! writes a section for each subject (one file each). Only `style.css` and `script.js` stand beside the text.

mod access;
mod code;
mod findings;
mod highlight;
mod layouts;
mod lines;
mod page;
mod resources;
mod study;
mod tile;
mod timeline;
mod traffic;

use std::time::Duration;
use weft::KernelFile;
use weft_check::CheckOptions;
use weft_run::RunError;

/// What a page shows, and how long it may take.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How kernels are compiled and checked. The numbers of PEs in it are ignored.
    pub check: CheckOptions,
    /// The number of PEs that run each kernel.
    pub pes: usize,
    /// The approximate time limit for the checks of a kernel. If all seeds would take longer, fewer
    /// seeds are tried, but always at least one.
    pub patience: Duration,
}

impl Options {
    /// Options for kernels that run on `pes` PEs, with checks that take at most ten seconds each.
    pub fn new(check: CheckOptions, pes: usize) -> Options {
        Options { check, pes, patience: Duration::from_secs(10) }
    }
}

/// A page, with the number of its kernels.
#[derive(Clone, Debug)]
pub struct Page {
    /// The HTML of the page.
    pub text: String,
    /// The number of kernels that it shows.
    pub kernels: usize,
}

/// The progress of making a page.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The number of steps that are done.
    pub done: usize,
    /// The number of all steps.
    pub total: usize,
    /// The current step, such as `checking`.
    pub doing: &'a str,
    /// The kernel of the current step.
    pub kernel: &'a str,
}

/// Makes the page of a file's kernels, or of the kernel that `options.check.compile` names.
/// `progress` is called for each step.
///
/// # Errors
///
/// Fails if a kernel does not compile. If a kernel cannot be run or disassembled, the page is made
/// and its sections say why.
pub fn page(file: &KernelFile, options: &Options, progress: &dyn Fn(Progress<'_>)) -> Result<Page, RunError> {
    let studies = study::all(file, options, progress)?;
    Ok(Page { text: page::write(file, options, &studies), kernels: studies.len() })
}
