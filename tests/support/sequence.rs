//! The kernels that a `sequence` directive names.

use super::directives::Expectations;
use weft::KernelFile;

/// The kernels of a sequence, in order: each with its name, and with its file if it is in another
/// one.
///
/// # Errors
/// Fails if a file cannot be read or is not a kernel file.
pub fn kernels(expects: &Expectations) -> Result<Vec<(Option<KernelFile>, &str)>, String> {
    let kernel = |entry: &'_ String| -> Result<Option<KernelFile>, String> {
        let Some((path, _)) = entry.split_once(':') else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        KernelFile::parse(path, &text).map(Some).map_err(|e| format!("{path}: {e}"))
    };
    let name = |entry: &'_ String| entry.rfind(':').map_or(0, |at| at + 1);
    expects.sequence.iter().map(|entry| Ok((kernel(entry)?, &entry[name(entry)..]))).collect()
}
