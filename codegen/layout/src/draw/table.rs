//! The coordinate-to-index grid as text.

use super::{Mapping, grid, offsets};
use crate::Result;

/// The layout and, below it, a table of its offsets. Mode 0 runs down and mode 1 runs across, and
/// each has its index as heading. A layout of rank 1 is a column.
///
/// # Errors
/// Fails if the rank is over 2, the grid is over [`MAX_CELLS`](super::MAX_CELLS), or a number is
/// symbolic.
pub fn table(layout: &dyn Mapping) -> Result<String> {
    let (rows, columns) = grid("table", layout.shape())?;
    let cells = offsets("table", layout, rows, columns)?;
    let digits = |v: i64| v.to_string().len();
    let widest = cells.iter().flatten().copied().map(digits).max().unwrap_or(1);
    let width = widest.max(digits((columns - 1).max(0)));
    let margin = digits((rows - 1).max(0)).max(2) + 2;

    let columns_head: String = (0..columns).map(|n| format!("  {n:>width$} ")).collect();
    let head = format!("{:margin$}{columns_head}", "");
    let dashes = format!("+{}", "-".repeat(width + 2)).repeat(columns.max(0) as usize);
    let rule = format!("{:margin$}{dashes}+\n", "");
    let mut out = format!("{layout}\n{}\n", head.trim_end());
    for (m, row) in cells.iter().enumerate() {
        let row: String = row.iter().map(|c| format!("| {c:>width$} ")).collect();
        out += &format!("{rule}{m:>w$}  {row}|\n", w = margin - 2);
    }
    Ok(out + &rule)
}
