//! The `weft` command.

fn main() -> std::process::ExitCode {
    weft_cli::run(std::env::args_os())
}
