//! `weft explain`

use super::{CompileArgs, write_out};
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
        let mut out = String::new();
        for a in &compiled.report.accesses {
            out.push_str(&format!("{}: {a}\n", compiled.place(a.span)));
        }
        for l in &compiled.report.loops {
            let why = l.why.as_deref().map(|w| format!(": {w}")).unwrap_or_default();
            out.push_str(&format!("{}: loop: {} rounds in flight{why}\n", compiled.place(l.span), l.rounds));
        }
        if let [k] = &compiled.high.kernels[..] {
            out = weft::ir::text::readable(k, &out);
        }
        write_out(None, out.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn explain_code(code: Code) -> Result<ExitCode> {
    let Some(info) = codes::explain(code) else { bail!("there is no error code {code}") };
    let mut out = format!("{code}: {}\n\n{}\n", info.title, info.explanation);
    let (Example::Text(example) | Example::Words(example)) = info.example;
    if !example.is_empty() {
        out.push_str("\nFor example:\n\n");
        example.lines().for_each(|l| out.push_str(&format!("    {l}\n")));
    }
    write_out(None, out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
