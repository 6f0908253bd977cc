//! `weft explain`

use super::{CompileArgs, write_out};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use weft::codes;
use weft::ir::codes::Example;

/// For a kernel file: what each tensor is used for, as declared or guessed, and every access with its instructions and
/// widths, and why they are not wider.
/// For an error code (E0212, R0104): what it means, with an example.
#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    compile: CompileArgs,
}

impl Explain {
    pub fn run(&self) -> Result<ExitCode> {
        let name = self.compile.file.path.to_string_lossy();
        if codes::is_code(&name) && !self.compile.file.path.exists() {
            return explain_code(&name);
        }
        let compiled = self.compile.compile(&self.compile.options()?)?;
        let mut out = roles(&compiled);
        for a in &compiled.report.accesses {
            out.push_str(&format!("{}: {a}\n", compiled.place(a.span)));
        }
        for t in &compiled.report.transfers {
            out.push_str(&format!("{}: {t}\n", compiled.place(t.span)));
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

/// What each tensor of the kernels is used for. Other parameters hold nothing that could be guessed wrongly.
fn roles(compiled: &weft::Compiled) -> String {
    let mut out = String::new();
    for (i, kernel) in compiled.high.kernels.iter().enumerate() {
        let reference = compiled.references.get(i).and_then(Option::as_ref);
        let roles = weft::roles::assign(kernel, reference);
        for (p, role) in kernel.head.params.iter().zip(roles) {
            if let Some(role) = role {
                out.push_str(&format!("{}: parameter {}: {role}\n", compiled.place(p.span), p.name));
            }
        }
    }
    out
}

fn explain_code(name: &str) -> Result<ExitCode> {
    let Some(page) = codes::page(name) else { bail!("there is no error code {}", name.to_ascii_uppercase()) };
    let mut out = format!("{}: {}\n\n{}\n", page.code, page.title, page.explanation);
    let (Example::Text(example) | Example::Words(example)) = page.example;
    if !example.is_empty() {
        out.push_str("\nFor example:\n\n");
        example.lines().for_each(|l| out.push_str(&format!("    {l}\n")));
    }
    write_out(None, out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
