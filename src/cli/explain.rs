//! `weft explain`

use super::CompileArgs;
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use weft::codes;
use weft::ir::codes::Example;
use weft::ir::diag::Code;

/// For a kernel file: every access with its instructions and widths, and why they are not wider.
/// For an error code (E0212): what it means, with an example.
#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    compile: CompileArgs,
}

impl Explain {
    pub fn run(&self) -> Result<ExitCode> {
        let name = self.compile.file.to_string_lossy();
        if let Some(number) = name.strip_prefix('E').and_then(|n| n.parse().ok()) {
            return explain_code(Code(number));
        }
        let compiled = self.compile.compile(&self.compile.options()?)?;
        for a in &compiled.report.accesses {
            println!("{}: {a}", compiled.place(a.span));
        }
        for l in &compiled.report.loops {
            println!(
                "{}: loop: {} rounds in flight{}",
                compiled.place(l.span),
                l.rounds,
                l.why.as_deref().map(|w| format!(": {w}")).unwrap_or_default()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn explain_code(code: Code) -> Result<ExitCode> {
    let Some(info) = codes::explain(code) else { bail!("there is no error code {code}") };
    println!("{code}: {}\n\n{}", info.title, info.explanation);
    let (Example::Text(example) | Example::Words(example)) = info.example;
    if !example.is_empty() {
        println!("\nFor example:\n");
        example.lines().for_each(|l| println!("    {l}"));
    }
    Ok(ExitCode::SUCCESS)
}
