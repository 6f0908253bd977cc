//! The command `weft lsp`.

use anyhow::{Result, anyhow};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use weft::library::{Files, part};
use weft_lsp::Workspace;
use weft_lsp::lsp_server::Connection;
use weft_runtime::find;
use weft_runtime::owned::{self, Trust};

/// Your editor starts this command. It speaks the language server protocol over standard input and
/// standard output. If a definition is in the built-in library, the server writes that part of the
/// library to your cache folder.
#[derive(Args)]
pub struct Lsp {}

impl Lsp {
    pub fn run(&self) -> Result<ExitCode> {
        let (connection, threads) = Connection::stdio();
        let workspace = Workspace { loader: |path| Box::new(Files::beside(path)), library_file };
        let served = weft_lsp::serve(&connection, workspace).map_err(|e| anyhow!("{e}"));
        drop(connection);
        served?;
        threads.join()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a file with the text of a part of the library.
fn library_file(name: &str) -> Option<PathBuf> {
    let text = part(name)?;
    let folder = find::cache_folder()?.join("library").join(env!("CARGO_PKG_VERSION"));
    owned::make_folder(&folder, Trust::Owner).ok()?;
    let path = folder.join(format!("{name}.weft"));
    if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Some(path);
    }
    std::fs::write(&path, text).ok()?;
    Some(path)
}
