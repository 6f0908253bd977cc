//! The `weft` command.

fn main() -> std::process::ExitCode {
    weft::cli::run(std::env::args_os())
}
