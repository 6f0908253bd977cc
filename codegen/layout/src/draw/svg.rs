//! SVG in the style of CuTe's drawings.

use std::fmt::Write;

use super::{Mapping, grid, offsets};
use crate::error::invalid;
use crate::modes::product_each;
use crate::{Int, IntTuple, Layout, LayoutError, Result};

/// CuTe's greys for an offset modulo 8.
const GREYS: [u8; 8] = [255, 230, 205, 180, 155, 130, 105, 80];

/// CuTe's colours for a thread modulo 8.
const THREADS: [&str; 8] =
    ["#afafff", "#afffaf", "#ffffaf", "#ffafaf", "#d2d2ff", "#d2ffd2", "#ffffd2", "#ffd2d2"];

/// Pixels of a character of the labels, and of a cell's height.
const CHARACTER: usize = 8;
const HEIGHT: usize = 30;

/// A grid of labelled cells under construction.
struct Picture {
    body: String,
    title: String,
    rows: usize,
    columns: usize,
    width: usize,
}

struct Cell<'a> {
    row: usize,
    column: usize,
    fill: &'a str,
    ink: &'a str,
    lines: &'a [String],
}

impl Picture {
    /// A grid with room for labels of `characters` in its cells, with its row and column indices.
    fn new(title: String, (rows, columns): (i64, i64), characters: usize) -> Picture {
        let (rows, columns) = (rows.max(0) as usize, columns.max(0) as usize);
        let characters = characters.max(columns.to_string().len());
        let width = (characters * CHARACTER + 12).max(HEIGHT);
        let mut picture = Picture { body: String::new(), title, rows, columns, width };
        for row in 0..rows {
            let y = HEIGHT * (row + 1) + HEIGHT / 2;
            picture.text(width / 2, y, "index", &row.to_string());
        }
        for column in 0..columns {
            let x = width * (column + 1) + width / 2;
            picture.text(x, HEIGHT / 2, "index", &column.to_string());
        }
        picture
    }

    fn text(&mut self, x: usize, y: usize, class: &str, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, r#"<text x="{x}" y="{y}" class="{class}">{}</text>"#, escape(text));
    }

    fn cell(&mut self, cell: &Cell<'_>) {
        let (x, y) = (self.width * (cell.column + 1), HEIGHT * (cell.row + 1));
        let (w, fill) = (self.width, cell.fill);
        let _ = writeln!(
            self.body,
            r#"<rect x="{x}" y="{y}" width="{w}" height="{HEIGHT}" fill="{fill}" stroke="black"/>"#
        );
        let pitch = HEIGHT / cell.lines.len().max(1);
        for (i, line) in cell.lines.iter().enumerate() {
            self.text(x + w / 2, y + pitch * i + pitch / 2, cell.ink, line);
        }
    }

    fn finish(self) -> String {
        let (w, h) = (self.width * (self.columns + 1) + 2, HEIGHT * (self.rows + 1) + 2);
        let title = escape(&self.title);
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" preserveAspectRatio="xMidYMid meet">
<title>{title}</title>
<style>text {{ font: 12px monospace; text-anchor: middle; dominant-baseline: central }} .light {{ fill: white }} .small {{ font-size: 10px }} .index {{ font-size: 13px }}</style>
<rect width="{w}" height="{h}" fill="white"/>
{}</svg>
"#,
            self.body
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The grid of a layout's offsets, mode 0 down and mode 1 across, shaded by the offset modulo 8.
///
/// # Errors
/// Fails if the rank is over 2, the grid is over [`MAX_CELLS`](super::MAX_CELLS), or a number is symbolic.
pub fn svg(layout: &dyn Mapping) -> Result<String> {
    let size = grid("svg", layout.shape())?;
    let cells = offsets("svg", layout, size.0, size.1)?;
    let longest = cells.iter().flatten().map(|v| v.to_string().len()).max().unwrap_or(1);
    let mut picture = Picture::new(layout.to_string(), size, longest);
    for (row, offsets) in cells.iter().enumerate() {
        for (column, &offset) in offsets.iter().enumerate() {
            let grey = GREYS[offset.rem_euclid(8) as usize];
            let (fill, ink) =
                (format!("#{grey:02x}{grey:02x}{grey:02x}"), if grey < 128 { "light" } else { "dark" });
            picture.cell(&Cell { row, column, fill: &fill, ink, lines: &[offset.to_string()] });
        }
    }
    Ok(picture.finish())
}

/// The tile of a thread-value layout, each element with the thread and the value that it belongs to, coloured by the
/// thread modulo 8. `layout_tv` maps `(thread,value)` to the colexicographic index in `tile`; of several that map to one
/// element the first is shown.
///
/// # Errors
/// Fails if `layout_tv` is not of rank 2 or leaves the tile, or where [`svg`] fails.
pub fn svg_tv(layout_tv: &Layout, tile: &IntTuple) -> Result<String> {
    const NAME: &str = "svg_tv";
    let extents = product_each(tile);
    let (rows, columns) = grid(NAME, &extents)?;
    let (threads, values) = grid(NAME, layout_tv.shape())?;
    if layout_tv.rank() != 2 {
        return invalid(NAME, format!("{layout_tv} must have rank 2: (thread,value)"));
    }
    let mut owner = vec![None; (rows * columns).max(0) as usize];
    for thread in 0..threads {
        for value in 0..values {
            let index = layout_tv.crd2idx(&IntTuple::tuple([thread, value]))?;
            let place = index.as_const().and_then(|i| usize::try_from(i).ok());
            match place.and_then(|i| owner.get_mut(i)) {
                Some(slot) => *slot = slot.or(Some((thread, value))),
                None if index.as_const().is_none() => {
                    let (function, mode) = (NAME, crate::Mode::default());
                    return Err(LayoutError::NotConstant { function, mode, value: index });
                }
                None => {
                    let reason = format!(
                        "thread {thread}, value {value} of {layout_tv} is at {index}, outside of {tile}"
                    );
                    return invalid(NAME, reason);
                }
            }
        }
    }
    let label = |prefix: char, i: i64| format!("{prefix}{}", Int::from(i));
    let characters = label('T', threads).len().max(label('V', values).len());
    let mut picture = Picture::new(format!("{layout_tv} in {tile}"), (rows, columns), characters);
    for (i, owner) in owner.into_iter().enumerate() {
        let (row, column) = (i % rows as usize, i / rows as usize);
        let (fill, lines) = match owner {
            None => ("white", vec![]),
            Some((t, v)) => (THREADS[t.rem_euclid(8) as usize], vec![label('T', t), label('V', v)]),
        };
        picture.cell(&Cell { row, column, fill, ink: "small", lines: &lines });
    }
    Ok(picture.finish())
}
