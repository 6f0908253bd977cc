//! Tools for work on warpweft itself, run as `cargo xtask NAME`.

mod replay;

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the whole corpus with the compiler of a revision and with that of the working tree,
    /// and print the differences. The exit status is 0 if there are none, 1 if there are some, and
    /// 2 for an error.
    Replay(replay::Replay),
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let result = match Cli::parse().command {
        Command::Replay(replay) => replay.run(root),
    };
    result.unwrap_or_else(|e| {
        use std::io::Write;
        // If standard error is closed, the error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr(), "error: {e:#}");
        ExitCode::from(2)
    })
}
