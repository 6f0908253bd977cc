//! The command `weft compile`.

use super::{CompileArgs, write_out};
use anyhow::{Result, anyhow, bail};
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::nvshmem::{Library, Objects};
use weft::runtime::find::{Found, nvshmem_device_if_any};
use weft::tools;
use weft::{Compiled, Nvshmem};

#[derive(Args)]
pub struct Compile {
    #[command(flatten)]
    compile: CompileArgs,
    /// The stage to write: ir, after:PASS, llvm, ptx, cubin, sass, meta.
    #[arg(long, default_value = "ptx")]
    emit: String,
    /// The file to write to. The default is standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print the time of each stage to standard error.
    #[arg(long)]
    time_passes: bool,
}

/// A value of `--emit`, and the function that makes its output.
type Emit = fn(&Compiled, &Nvshmem) -> Result<Vec<u8>>;
const EMIT: [(&str, Emit); 6] = [
    ("ir", |c, _| text(c.ir.as_deref())),
    ("llvm", |c, _| text(c.llvm.as_deref())),
    ("ptx", |c, _| text(Some(&c.ptx))),
    ("cubin", cubin),
    ("sass", |c, from| Ok(tools::disassemble(&cubin(c, from)?)?.into_bytes())),
    ("meta", |c, _| Ok(serde_json::to_vec_pretty(&c.describe()?)?)),
];

/// Assembles the kernel, links the cached object of NVSHMEM, and shows the assembler's warnings.
fn cubin(c: &Compiled, from: &Nvshmem) -> Result<Vec<u8>> {
    let made = match (c.caller(), from) {
        (None, _) => tools::assemble(&c.ptx, c.target)?,
        (_, Nvshmem::External) => return Ok(tools::assemble_object(&c.ptx, c.target, None)?),
        (Some(caller), Nvshmem::Found) => {
            Library::find(c.target.number().into())?.join(&caller, Objects::user())?
        }
        (Some(caller), Nvshmem::At(path)) => {
            let found = Found { path: path.clone(), by: "--nvshmem".into() };
            Library::at(found)?.join(&caller, Objects::user())?
        }
    };
    let warnings: Vec<_> = made.remarks.iter().map(|r| weft::tools::warning(r, c.sources())).collect();
    super::show(&warnings, c)?;
    Ok(made.accepted()?)
}

fn text(text: Option<&str>) -> Result<Vec<u8>> {
    text.map(|t| t.as_bytes().to_vec()).ok_or_else(|| anyhow!("this stage was not kept"))
}

impl Compile {
    pub fn run(&self) -> Result<ExitCode> {
        let mut options = self.compile.options()?;
        let after = self.emit.strip_prefix("after:");
        let row = EMIT.iter().find(|(name, _)| *name == self.emit);
        if row.is_none() && after.is_none() {
            let known: Vec<_> = EMIT.iter().map(|(n, _)| *n).collect();
            bail!("--emit {}: expected one of {}, or after:PASS", self.emit, known.join(", "));
        }
        options.keep_ir = self.emit == "ir";
        options.keep_llvm = self.emit == "llvm";
        options.keep_after = after.map(str::to_owned);
        let mut nvshmem = self.compile.nvshmem(options.target)?;
        if ["ptx", "llvm", "meta"].contains(&&*self.emit) {
            options.nvshmem = nvshmem.clone();
        }
        let compiled = self.compile.compile(&options)?;
        super::warn(&compiled)?;
        if row.is_some_and(|(name, _)| *name != "ir")
            && nvshmem == Nvshmem::Found
            && !compiled.external().is_empty()
            && nvshmem_device_if_any(options.target.number().into())?.is_none()
        {
            nvshmem = Nvshmem::External;
            left_external(&compiled)?;
        }
        let mut data = match row {
            Some((_, emit)) => emit(&compiled, &nvshmem)?,
            None => text(compiled.after.as_deref())?,
        };
        if self.emit == "cubin" && self.output.is_none() && std::io::stdout().is_terminal() {
            bail!("a cubin is a binary file, which a terminal cannot show: name a file with -o");
        }
        if self.emit != "cubin" && !data.ends_with(b"\n") {
            data.push(b'\n');
        }
        write_out(self.output.as_deref(), &data)?;
        if self.time_passes && !super::verbosity::verbose() {
            times(&compiled)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a note that functions stay external because no device bitcode was found.
fn left_external(c: &Compiled) -> Result<()> {
    if super::verbosity::quiet() {
        return Ok(());
    }
    Ok(writeln!(
        std::io::stderr(),
        "note: NVSHMEM's device bitcode was not found, so the functions that the kernel calls stay external: {}\n  \
         help: the simulator runs this PTX, and a launch on GPUs links the functions; to link them here, \
         run `weft setup` or give --nvshmem PATH; --nvshmem extern prints the same PTX without this note",
        c.external().join(", ")
    )?)
}

/// A table of the stages and their times.
pub(super) fn times(c: &Compiled) -> Result<()> {
    let mut err = std::io::stderr().lock();
    let total: std::time::Duration = c.timings.iter().map(|(_, t)| *t).sum();
    for (name, t) in c.timings.iter().map(|(n, t)| (n.as_str(), *t)).chain([("total", total)]) {
        writeln!(err, "{name:<16} {:>9.3} ms", t.as_secs_f64() * 1e3)?;
    }
    Ok(())
}
