//! SVG in the style of CuTe's drawings.

use std::fmt::Write;

use super::{Mapping, grid, offsets};
use crate::error::invalid;
use crate::modes::product_each;
use crate::{IntTuple, Layout, LayoutError, Result};

/// CuTe's greys for an offset modulo 8.
const GREYS: [u8; 8] = [255, 230, 205, 180, 155, 130, 105, 80];

/// Hues of a thread modulo 8, in degrees. Neighbours are far apart.
const HUES: [f64; 8] = [225.0, 120.0, 50.0, 0.0, 180.0, 285.0, 85.0, 20.0];

/// Lightnesses of a value modulo 4, in percent. Dark ink is legible on all of them.
const LIGHTNESSES: [f64; 4] = [90.0, 84.0, 78.0, 72.0];

/// The width of a label's character and the height of a cell, in pixels.
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

/// A cell of a picture: its colour, and the lines of its label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Cells of equal numbers modulo 8 have one hue, and a line separates those of different numbers.
    pub hue: i64,
    /// Cells of equal numbers modulo 4 have one lightness.
    pub shade: i64,
    /// The lines of the label.
    pub lines: Vec<String>,
}

impl Cell {
    /// The cell of a thread's value, as CuTe labels it: `T5` above `V0`.
    pub fn of_thread(thread: i64, value: i64) -> Cell {
        Cell { hue: thread, shade: value, lines: vec![format!("T{thread}"), format!("V{value}")] }
    }

    fn fill(&self) -> String {
        hsl(HUES[self.hue.rem_euclid(8) as usize], LIGHTNESSES[self.shade.rem_euclid(4) as usize])
    }
}

/// The colour of a hue in degrees and a lightness in percent, as `#rrggbb`.
fn hsl(hue: f64, lightness: f64) -> String {
    let light = lightness / 100.0;
    let chroma = 0.7 * light.min(1.0 - light);
    let channel = |n: f64| {
        let k = (n + hue / 30.0).rem_euclid(12.0);
        ((light - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0)) * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

impl Picture {
    /// A grid whose cells have space for labels of `characters`, with its row and column indices.
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

    fn cell(&mut self, (row, column): (usize, usize), fill: &str, ink: &str, lines: &[String]) {
        let (x, y, w) = (self.width * (column + 1), HEIGHT * (row + 1), self.width);
        let _ = writeln!(
            self.body,
            r#"<rect x="{x}" y="{y}" width="{w}" height="{HEIGHT}" fill="{fill}" class="cell"/>"#
        );
        let pitch = HEIGHT / lines.len().max(1);
        for (i, line) in lines.iter().enumerate() {
            self.text(x + w / 2, y + pitch * i + pitch / 2, ink, line);
        }
    }

    /// Draws lines between neighbours of different hues, and a line around the grid.
    fn borders(&mut self, hue: &dyn Fn(usize, usize) -> Option<i64>) {
        let mut path = String::new();
        let (w, h) = (self.width, HEIGHT);
        for row in 0..=self.rows {
            for column in 0..=self.columns {
                let (x, y) = (w * (column + 1), h * (row + 1));
                let own = hue(row, column);
                if row < self.rows && (column == 0 || hue(row, column - 1) != own) {
                    let _ = write!(path, "M{x} {y}v{h}");
                }
                if column < self.columns && (row == 0 || hue(row - 1, column) != own) {
                    let _ = write!(path, "M{x} {y}h{w}");
                }
            }
        }
        let _ = writeln!(self.body, r#"<path d="{path}" class="border"/>"#);
    }

    fn finish(self) -> String {
        let (w, h) = (self.width * (self.columns + 1) + 2, HEIGHT * (self.rows + 1) + 2);
        let title = escape(&self.title);
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="weft-layout" width="{w}" height="{h}" viewBox="0 0 {w} {h}" preserveAspectRatio="xMidYMid meet">
<title>{title}</title>
<style>{STYLE}</style>
<rect width="{w}" height="{h}" class="ground"/>
{}</svg>
"#,
            self.body
        )
    }
}

/// The colours of the page outside the cells follow the viewer's colour scheme. The rules name the
/// picture's class, because a page that contains the picture also has text of its own.
const STYLE: &str = "\
.weft-layout text { font: 12px monospace; text-anchor: middle; dominant-baseline: central; fill: #1b1b1b } \
.weft-layout .light { fill: white } .weft-layout .small { font-size: 10px } \
.weft-layout .index { font-size: 13px; fill: #555 } .weft-layout .ground { fill: white } \
.weft-layout .none { fill: none } .weft-layout .cell { stroke: #0004; stroke-width: .5 } \
.weft-layout .border { fill: none; stroke: black; stroke-width: 1.5 } \
@media (prefers-color-scheme: dark) { .weft-layout .ground { fill: #16191f } .weft-layout .index { fill: #aab } \
.weft-layout .border { stroke: #555 } }";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The grid of a layout's offsets, shaded by the offset modulo 8. Mode 0 runs down and mode 1 runs
/// across.
///
/// # Errors
/// Fails if the rank is over 2, the grid is over [`MAX_CELLS`](super::MAX_CELLS), or a number is
/// symbolic.
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
            picture.cell((row, column), &fill, ink, &[offset.to_string()]);
        }
    }
    picture.borders(&|row, column| Some((row * size.1.max(0) as usize + column) as i64));
    Ok(picture.finish())
}

/// A picture of `rows` and `columns` whose cells are those that `cell` returns. A position for
/// which it returns none stays empty.
///
/// # Errors
/// Fails if the number of cells is over [`MAX_CELLS`](super::MAX_CELLS).
pub fn svg_cells(
    title: &str,
    (rows, columns): (usize, usize),
    cell: &dyn Fn(usize, usize) -> Option<Cell>,
) -> Result<String> {
    let size = (rows as i64, columns as i64);
    grid("svg_cells", &IntTuple::tuple([size.0, size.1]))?;
    let at = |i: usize| cell(i / columns.max(1), i % columns.max(1));
    let cells: Vec<_> = (0..rows * columns).map(at).collect();
    let labels = cells.iter().flatten().flat_map(|c| &c.lines);
    let mut picture = Picture::new(title.to_owned(), size, labels.map(String::len).max().unwrap_or(1));
    for (i, cell) in cells.iter().enumerate() {
        let place = (i / columns, i % columns);
        match cell {
            Some(cell) => picture.cell(place, &cell.fill(), "small", &cell.lines),
            None => picture.cell(place, "none", "small", &[]),
        }
    }
    picture.borders(&|row, column| {
        let inside = row < rows && column < columns;
        cells.get(row * columns + column).filter(|_| inside)?.as_ref().map(|c| c.hue)
    });
    Ok(picture.finish())
}

/// The tile of a thread-value layout: each element shows the thread and the value that it belongs
/// to. The hue is that of the thread modulo 8, and the lightness that of the value modulo 4.
/// `layout_tv` maps `(thread,value)` to the colexicographic index in `tile`. If several pairs map
/// to one element, the first is shown.
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
    let cell = |row: usize, column: usize| {
        let (thread, value) = (*owner.get(row + column * rows as usize)?)?;
        Some(Cell::of_thread(thread, value))
    };
    let size = (rows.max(0) as usize, columns.max(0) as usize);
    svg_cells(&format!("{layout_tv} in {tile}"), size, &cell)
}
