//! The measurements as a plot: for each shape, the time of each contender relative to that of the
//! product alone.

use super::{Report, Row};
use crate::BenchError;
use crate::plot::{COLORS, FONT, GREY};
use plotters::prelude::*;

/// The size of the picture, and the height of the text above the plot.
const SIZE: (u32, u32) = (1200, 560);
const HEAD: u32 = 70;
/// The fraction of a shape's width that its bars take.
const BARS: f64 = 0.8;

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What a bar shows: the time relative to the GEMM alone, or in microseconds where that was not measured.
struct Bars<'a> {
    rows: &'a [Row],
    relative: bool,
}

impl Bars<'_> {
    fn height(&self, row: &Row) -> f64 {
        if self.relative { row.of_product.unwrap_or_default() } else { row.time_us.median }
    }

    /// The contenders, each with its plan, in the order of the table.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.rows.iter().map(name).for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
        names
    }

    fn shapes(&self) -> Vec<String> {
        let mut shapes: Vec<String> = self.rows.iter().map(|r| r.shape.to_string()).collect();
        shapes.dedup();
        shapes
    }
}

fn name(row: &Row) -> String {
    match row.name.as_str() {
        "fused" => row.plan.clone(),
        other => other.to_owned(),
    }
}

impl Report {
    /// The plot of all rows, as SVG.
    ///
    /// # Errors
    ///
    /// Fails if there are no rows, or if the picture cannot be drawn.
    pub fn plot(&self) -> Result<String, BenchError> {
        if self.rows.is_empty() {
            return Err(BenchError::Request("there are no measurements to plot".into()));
        }
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|e| BenchError::Request(format!("no plot: {e}")))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let bars = Bars { rows: &self.rows, relative: self.rows.iter().all(|r| r.of_product.is_some()) };
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD);
        let title = format!("{:?} and GEMM, {} x {}", self.form, self.n_pes, self.gpu);
        head.draw_text(&title, &(FONT, 22).into_font().color(&BLACK), (24, 12))?;
        let how = if self.graph { "in a CUDA graph" } else { "back to back" };
        let how = format!("median of {} blocks, {how}, on the slowest PE; {}", self.repeats, self.date);
        head.draw_text(&how, &(FONT, 14).into_font().color(&GREY), (24, 42))?;

        let (names, shapes) = (bars.names(), bars.shapes());
        let max = self.rows.iter().map(|row| bars.height(row)).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(&body)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..shapes.len() as f64, 0.0..max * 1.25)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(2 * shapes.len() + 1)
            .x_label_formatter(&|x| middle(*x).and_then(|i| shapes.get(i).cloned()).unwrap_or_default())
            .y_desc(if bars.relative { "time relative to the GEMM alone" } else { "us" })
            .draw()?;
        let width = BARS / names.len().max(1) as f64;
        for (i, (name_of, color)) in names.iter().zip(COLORS.iter().cycle()).enumerate() {
            let rows = self.rows.iter().filter(|row| name(row) == *name_of);
            let one = |row: &Row| {
                let at = shapes.iter().position(|s| *s == row.shape.to_string()).unwrap_or_default();
                let left = at as f64 + (1.0 - BARS) / 2.0 + i as f64 * width;
                Rectangle::new([(left, 0.0), (left + width * 0.9, bars.height(row))], color.filled())
            };
            let style = color.filled();
            chart
                .draw_series(rows.map(one))?
                .label(name_of.as_str())
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
        root.present()?;
        Ok(())
    }
}

/// The shape whose centre is at a label of the axis.
fn middle(x: f64) -> Option<usize> {
    ((x.fract() - 0.5).abs() < 1e-6).then_some(x as usize)
}
