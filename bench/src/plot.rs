//! The measurements as a plot: time and bus bandwidth against size.

use super::BenchError;
use super::measure::Result;
use super::report::{Report, Row};
use super::{Contender, Placement};
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, LogCoord};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// The size of the picture, the height above the panels, and the width beside them.
const SIZE: (u32, u32) = (1400, 640);
const HEAD: u32 = 78;
const LEGEND: u32 = 170;

/// The relative difference between times in place and out of place, for at least one size, from
/// which both are drawn.
const DIFFERENT: f64 = 0.05;

pub(super) const FONT: &str = "sans-serif";
pub(super) const GREY: RGBColor = RGBColor(110, 110, 110);

/// The colours of the lines. The first seven can be told apart with red-green colour blindness too
/// (Okabe and Ito, 2008).
pub(super) const COLORS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(120, 70, 160),
    RGBColor(150, 110, 60),
    RGBColor(170, 30, 60),
    RGBColor(120, 160, 20),
    RGBColor(20, 60, 90),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<LogCoord<f64>, Y>>;
type Error = Box<dyn std::error::Error>;
type Drawn = std::result::Result<(), Error>;

/// The line of a contender with a placement.
struct Line<'a> {
    name: &'a str,
    color: RGBColor,
    /// Whether the line is dashed, which means in place.
    dashed: bool,
    ours: bool,
    rows: Vec<&'a Row>,
}

impl Report {
    /// The plot of all rows as SVG: times on the left, bus bandwidths on the right, both against
    /// the size, with the bandwidth of the links.
    ///
    /// # Errors
    ///
    /// Fails if no row has a size, or if the picture cannot be drawn.
    pub fn plot(&self) -> Result<String> {
        let lines = self.lines();
        if lines.is_empty() {
            return Err(BenchError::Request(format!(
                "{} has no sizes, so its results cannot be plotted",
                self.operation
            )));
        }
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&root, &lines).map_err(|e| BenchError::Request(format!("no plot: {e}")))?;
        }
        Ok(svg)
    }

    fn draw(&self, root: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD);
        let (title, how) = self.titles(lines);
        head.draw_text(&title, &(FONT, 22).into_font().color(&BLACK), (24, 14))?;
        let with = format!("{}; {}", self.versions(), self.date);
        for (text, y) in [(how, 42), (with, 60)] {
            head.draw_text(&text, &(FONT, 14).into_font().color(&GREY), (24, y))?;
        }
        let (charts, legend) = body.split_horizontally(SIZE.0 - LEGEND);
        let (left, right) = charts.split_horizontally((SIZE.0 - LEGEND) / 2);
        self.times(&left, lines)?;
        self.bandwidths(&right, lines)?;
        self.legend(&legend, lines)?;
        root.present()?;
        Ok(())
    }

    fn titles(&self, lines: &[Line<'_>]) -> (String, String) {
        let row = self.rows.first();
        let dtype = row.map_or("", |r| r.dtype.name());
        let op = row.and_then(|r| r.redop.clone()).map_or(String::new(), |op| format!(" {op}"));
        let title = format!("{} of {dtype}{op}, {} x {}", self.operation, self.n_pes, self.gpu);
        let graph = if self.graph { "CUDA graph" } else { "back to back" };
        let in_place = self.rows.iter().any(|r| r.place == Placement::InPlace);
        let dashed = match lines.iter().any(|l| l.dashed) {
            true => "; dashed: in place (omitted where the times are within 5 % of those out of place)",
            false if in_place => "; the times in place are within 5 %",
            false => "",
        };
        let how = format!(
            "{graph}, {} lowering; median of {} blocks of {} calls, on the slowest PE of each block{dashed}",
            self.lowering, self.repeats, self.iters
        );
        (title, how)
    }

    fn times(&self, area: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        let times = || lines.iter().flat_map(|l| &l.rows).map(|r| r.time_us.median);
        let min = times().fold(f64::INFINITY, f64::min).max(0.01) / 1.5;
        let max = times().fold(min, f64::max) * 1.5;
        let y = LogCoord::from((min..max).log_scale()).with_key_points(steps(min, max));
        let mut chart = self.panel(area, "time per call (us)", y)?;
        draw_lines(&mut chart, lines, |r| r.time_us.median)
    }

    fn bandwidths(&self, area: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        let limits = self.limits();
        let measured = lines.iter().flat_map(|l| &l.rows).map(|r| r.busbw);
        let max = measured.chain(limits.iter().map(|(gbps, _)| *gbps)).fold(1e-3, f64::max) * 1.1;
        let mut chart = self.panel(area, "bus bandwidth (GB/s)", RangedCoordf64::from(0.0..max))?;
        let ends = self.ends();
        let mut above = f64::INFINITY;
        for (gbps, label) in limits {
            let style = ShapeStyle::from(&GREY).stroke_width(1);
            chart.draw_series(DashedLineSeries::new([(ends.0, gbps), (ends.1, gbps)], 2, 3, style))?;
            // A label that would overlap the previous one is drawn below its line.
            let y = if (above - gbps) / max < 0.05 { 3 } else { -15 };
            above = gbps;
            let text = Text::new(label, (4, y), (FONT, 13).into_font().color(&GREY));
            chart.draw_series([EmptyElement::at((ends.0, gbps)) + text])?;
        }
        draw_lines(&mut chart, lines, |r| r.busbw)
    }

    /// A chart over the sizes, without lines.
    fn panel<'a, Y>(&self, area: &Area<'a>, caption: &str, y: Y) -> std::result::Result<Chart<'a, Y>, Error>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let (min, max) = self.ends();
        let x: LogCoord<f64> = (min..max).log_scale().base(2.0).into();
        let mut chart = ChartBuilder::on(area);
        chart.caption(caption, (FONT, 16)).margin(14).margin_right(24);
        let mut chart = chart.x_label_area_size(44).y_label_area_size(56).build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("size").x_label_formatter(&|x| size(*x)).y_label_formatter(&|y| short(*y));
        mesh.x_labels(12).y_labels(10).max_light_lines(0);
        mesh.bold_line_style(RGBColor(225, 225, 225)).label_style((FONT, 13)).draw()?;
        Ok(chart)
    }

    /// Draws the legend of the lines.
    fn legend(&self, area: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        let mut y = 60;
        for (i, line) in lines.iter().enumerate() {
            if lines[..i].iter().any(|l| l.name == line.name) {
                continue;
            }
            area.draw(&PathElement::new([(0, y), (26, y)], line.style()))?;
            area.draw(&line.dot((13, y)))?;
            area.draw_text(line.name, &(FONT, 14).into_font().color(&BLACK), (34, y - 7))?;
            y += 20;
        }
        Ok(())
    }

    /// The bandwidths of the links in one direction, with their labels: as specified, and as
    /// measured.
    fn limits(&self) -> Vec<(f64, String)> {
        let specified =
            self.nvlink.map(|n| (n.gbps, format!("{} NVLinks, {:.0} GB/s per direction", n.links, n.gbps)));
        let best = self.calibration.as_ref().and_then(|c| c.best_push());
        let pushed = best.map(|b| (b.gbps, format!("measured push to the next PE, {:.0} GB/s", b.gbps)));
        specified.into_iter().chain(pushed).collect()
    }

    /// The least and the greatest size, which differ at least slightly.
    fn ends(&self) -> (f64, f64) {
        let sizes = || self.rows.iter().map(|r| r.size as f64).filter(|s| *s > 0.0);
        let (min, max) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max));
        if min < max { (min, max) } else { (max / 2.0, max * 2.0) }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for row in self.rows.iter().filter(|r| r.size > 0) {
            let in_place = row.place == Placement::InPlace;
            match lines.iter_mut().find(|l| (l.name, l.dashed) == (row.algorithm.as_str(), in_place)) {
                Some(line) => line.rows.push(row),
                None => {
                    let (name, ours) = (&*row.algorithm, !Contender::is_peer(&row.algorithm));
                    lines.push(Line { name, color: BLACK, dashed: in_place, ours, rows: vec![row] });
                }
            }
        }
        for line in &mut lines {
            line.rows.sort_by_key(|r| r.size);
        }
        let repeats: Vec<bool> = lines.iter().map(|line| line.repeats(&lines)).collect();
        let mut repeats = repeats.into_iter();
        lines.retain(|_| !repeats.next().unwrap_or(false));
        // The lines of warpweft come first. If there are more lines than colours, a peer's line
        // shares a colour with one of them.
        lines.sort_by_key(|line| !line.ours);
        let mut names: Vec<&str> = Vec::new();
        for line in &mut lines {
            let index = names.iter().position(|n| *n == line.name).unwrap_or_else(|| {
                names.push(line.name);
                names.len() - 1
            });
            line.color = COLORS[index % COLORS.len()];
        }
        lines
    }
}

impl Line<'_> {
    /// Whether the line nearly coincides with that of the same contender out of place.
    fn repeats(&self, all: &[Line<'_>]) -> bool {
        let apart = all.iter().find(|l| self.dashed && !l.dashed && l.name == self.name);
        let close = |row: &Row, other: &Row| {
            row.size == other.size && (row.time_us.median / other.time_us.median - 1.0).abs() <= DIFFERENT
        };
        apart.is_some_and(|apart| {
            apart.rows.len() == self.rows.len() && self.rows.iter().zip(&apart.rows).all(|(a, b)| close(a, b))
        })
    }

    fn style(&self) -> ShapeStyle {
        ShapeStyle::from(&self.color).stroke_width(if self.ours { 3 } else { 2 })
    }

    /// The marker of a point: a disc for a contender of warpweft, a ring for a peer.
    fn dot<C>(&self, at: C) -> Circle<C, i32> {
        let style = if self.ours { self.color.filled() } else { self.color.stroke_width(1) };
        Circle::new(at, if self.ours { 3 } else { 4 }, style)
    }
}

fn draw_lines<Y: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, Y>,
    lines: &[Line<'_>],
    value: fn(&Row) -> f64,
) -> Drawn {
    for line in lines {
        let points = || line.rows.iter().map(|r| (r.size as f64, value(r)));
        if line.dashed {
            chart.draw_series(DashedLineSeries::new(points(), 6, 4, line.style()))?;
        } else {
            chart.draw_series(LineSeries::new(points(), line.style()))?;
        }
        chart.draw_series(points().map(|at| line.dot(at)))?;
    }
    Ok(())
}

/// The labels of the axis: 1, 2 and 5 of every decade, or 1 alone if there are many decades.
fn steps(min: f64, max: f64) -> Vec<f64> {
    let decades = min.log10().floor() as i32..=max.log10().ceil() as i32;
    let of: &[f64] = if decades.clone().count() > 5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = decades.flat_map(|d| of.iter().map(move |n| n * 10f64.powi(d)));
    all.filter(|n| (min..max).contains(n)).collect()
}

/// A size for people: `64K`.
fn size(bytes: f64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes >= f64::from(1 << shift));
    unit.map_or_else(|| short(bytes), |(shift, unit)| short(bytes / f64::from(1 << shift)) + unit)
}

/// A number without trailing zeros.
fn short(n: f64) -> String {
    if n >= 10.0 || n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.1}") }
}
