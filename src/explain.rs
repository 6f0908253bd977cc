//! The command `weft explain`.

use super::{CompileArgs, write_out};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use weft::codes::Page;
use weft::ir::codes::Example;

/// For a kernel file, show the declared or inferred use of each tensor, and every access with its
/// instructions, its widths, and the reason why it is not wider. For an error code (E0212, R0104),
/// show its meaning with an example.
#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    compile: CompileArgs,
}

impl Explain {
    pub fn run(&self) -> Result<ExitCode> {
        let name = self.compile.file.path.to_string_lossy();
        if Page::is_code(&name) && !self.compile.file.path.exists() {
            return explain_code(&name);
        }
        let compiled = self.compile.compile(&self.compile.options()?)?;
        write_out(None, compiled.explain().as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn explain_code(name: &str) -> Result<ExitCode> {
    let Some(page) = Page::find(name) else { bail!("{} is not an error code", name.to_ascii_uppercase()) };
    let mut out = format!("{}: {}\n\n{}\n", page.code, page.title, page.explanation);
    let (Example::Text(example) | Example::Words(example)) = page.example;
    if !example.is_empty() {
        out.push_str("\nFor example:\n\n");
        example.lines().for_each(|l| out.push_str(&format!("    {l}\n")));
    }
    write_out(None, out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
