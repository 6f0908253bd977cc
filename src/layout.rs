//! The command `weft layout`.

use anyhow::{Result, bail};
use clap::Args;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use weft::layout::expr;

/// Evaluate layout expressions. The functions have the same names as in CuTe.
#[derive(Args)]
pub struct LayoutCommand {
    /// The expression, or - to read one per line from standard input.
    #[arg(allow_hyphen_values = true, required_unless_present = "functions")]
    expression: Option<String>,
    /// Print the grid of coordinates and indices.
    #[arg(long)]
    table: bool,
    /// Draw the layout to a file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// List the functions.
    #[arg(long)]
    functions: bool,
}

/// The length of the longest line that is read as an expression.
const MAX_LINE: usize = 1 << 20;

impl LayoutCommand {
    pub fn run(&self) -> Result<ExitCode> {
        if self.functions {
            return functions();
        }
        let text = self.expression.as_deref().unwrap_or_default();
        if text == "-" {
            if self.table || self.svg.is_some() {
                bail!("--table and --svg take one expression, not -");
            }
            return lines();
        }
        let value = expr::eval(text)
            .map_err(|e| anyhow::anyhow!("{e}\n  {text}\n  {}^", " ".repeat(column(text, e.position))))?;
        if let Some(path) = &self.svg {
            let svg = value.svg()?;
            std::fs::write(path, svg).map_err(|e| anyhow::anyhow!("cannot write {}: {e}", path.display()))?;
        }
        let text = if self.table { value.table()? } else { format!("{value}\n") };
        super::write_out(None, text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The number of characters before a byte position.
fn column(text: &str, position: usize) -> usize {
    text.char_indices().take_while(|(i, _)| *i < position).count()
}

/// Prints one answer for each line. A bad line gets its error as the answer, and the following
/// lines are still evaluated. The status is 1 if a line was bad.
fn lines() -> Result<ExitCode> {
    let mut input = std::io::stdin().lock();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    let mut all_good = true;
    loop {
        line.clear();
        let n = std::io::Read::take(&mut input, MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            break;
        }
        if n == MAX_LINE && !line.ends_with(b"\n") {
            writeln!(out, "error: the line is longer than {MAX_LINE} bytes")?;
            all_good = false;
            while input.fill_buf()?.iter().all(|b| *b != b'\n') {
                let skipped = input.fill_buf()?.len();
                if skipped == 0 {
                    break;
                }
                input.consume(skipped);
            }
            let rest = input.fill_buf()?.iter().position(|b| *b == b'\n').map_or(0, |i| i + 1);
            input.consume(rest);
            continue;
        }
        let answer = match std::str::from_utf8(&line).map(str::trim) {
            Ok(text) => expr::eval(text).map_err(|e| e.to_string().replace('\n', " ")),
            Err(_) => Err("the line is not UTF-8".into()),
        };
        all_good &= answer.is_ok();
        match answer {
            Ok(value) => writeln!(out, "{value}")?,
            Err(why) => writeln!(out, "error: {why}")?,
        }
        out.flush()?;
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn functions() -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for f in expr::functions() {
        writeln!(out, "{:<44} {}", f.signature, f.doc)?;
    }
    Ok(ExitCode::SUCCESS)
}
