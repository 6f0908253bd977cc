//! The commands `weft completions` and `weft man`.

use super::Cli;
use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// For bash: `weft completions bash > ~/.local/share/bash-completion/completions/weft`.
#[derive(Args)]
pub struct Completions {
    /// The shell for which completions are written.
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "weft", &mut script);
        super::write_out(None, &script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// `man weft-run` then shows the page of `weft run`, if the folder is `man1` in a folder of
/// MANPATH.
#[derive(Args)]
pub struct Man {
    /// The folder for the pages. By default, the page of `weft` itself goes to standard output.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Man {
    pub fn run(&self) -> Result<ExitCode> {
        let mut command = Cli::command();
        command.build();
        match &self.folder {
            None => super::write_out(None, &page(&command)?)?,
            Some(folder) => {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                pages(&command, folder)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// Writes the pages of a command and of its subcommands.
fn pages(command: &Command, folder: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command)?).with_context(|| format!("cannot write {}", path.display()))?;
    let shown = command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    for sub in shown {
        pages(sub, folder)?;
    }
    Ok(())
}
