//! What was measured, as a picture: time and bus bandwidth against size.

use super::BenchError;
use super::Place;
use super::measure::Result;
use super::report::{Report, Row};
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// Extent of the picture, and of what stands over the panels.
const SIZE: (u32, u32) = (1280, 620);
const HEAD: u32 = 64;

const FONT: &str = "sans-serif";
const GREY: RGBColor = RGBColor(110, 110, 110);

/// Colours, the first seven told apart also by who does not see red and green alike (Okabe and Ito, 2008).
const COLORS: [RGBColor; 12] = [
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
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// A contender with a place.
struct Line<'a> {
    name: &'a str,
    /// The contender's first line, which the legend has.
    first: bool,
    color: RGBColor,
    /// In place.
    dashed: bool,
    ours: bool,
    rows: Vec<&'a Row>,
}

impl Report {
    /// An SVG of all rows: times on the left, bus bandwidths on the right, both against the size, with what the links
    /// have.
    ///
    /// # Errors
    /// No rows with a size, or a picture that cannot be drawn.
    pub fn plot(&self) -> Result<String> {
        let lines = self.lines();
        if lines.is_empty() {
            return Err(BenchError::Request(format!("{} has no sizes to plot against", self.operation)));
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
        let (title, about) = self.titles();
        head.draw_text(&title, &(FONT, 22).into_font().color(&BLACK), (24, 14))?;
        head.draw_text(&about, &(FONT, 14).into_font().color(&GREY), (24, 42))?;
        let (left, right) = body.split_horizontally(SIZE.0 / 2);
        self.times(&left, lines)?;
        self.bandwidths(&right, lines)?;
        root.present()?;
        Ok(())
    }

    fn titles(&self) -> (String, String) {
        let row = self.rows.first();
        let dtype = row.map_or("", |r| r.dtype.name());
        let op = row.and_then(|r| r.redop.clone()).map_or(String::new(), |op| format!(" {op}"));
        let title = format!("{} of {dtype}{op}, {} x {}", self.operation, self.n_pes, self.gpu);
        let graph = if self.graph { "CUDA graph" } else { "back to back" };
        let nccl = self.nccl.as_ref().map_or(String::new(), |v| format!(", NCCL {v}"));
        let in_place = self.rows.iter().any(|r| r.place == Place::InPlace);
        let dashed = if in_place { "; dashed: in place" } else { "" };
        let about = format!(
            "{graph}, {} lowering; median of {} blocks of {} calls on their slowest PEs{dashed}; CUDA {}, NVSHMEM {}{nccl}; {}",
            self.lowering, self.repeats, self.iters, self.cuda, self.nvshmem, self.date
        );
        (title, about)
    }

    fn times(&self, area: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        let times = || lines.iter().flat_map(|l| &l.rows).map(|r| r.time_us.median);
        let least = times().fold(f64::INFINITY, f64::min).max(0.01);
        let most = times().fold(least, f64::max);
        let mut chart = ChartBuilder::on(area);
        chart.caption("time of a call (us)", (FONT, 16)).margin(14).margin_right(24);
        chart.x_label_area_size(44).y_label_area_size(56);
        let y = (least / 1.5..most * 2.0).log_scale();
        let mut chart = chart.build_cartesian_2d(self.sizes(), y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("size").x_label_formatter(&|x| size(*x)).y_label_formatter(&|y| short(*y));
        mesh.x_labels(12).y_labels(12).max_light_lines(2).light_line_style(RGBColor(240, 240, 240));
        mesh.bold_line_style(RGBColor(225, 225, 225)).label_style((FONT, 13)).draw()?;
        for line in lines {
            let points: Vec<_> = line.rows.iter().map(|r| (r.size as f64, r.time_us.median)).collect();
            let (style, dots) = (line.style(), points.clone());
            // A series with a label is in the legend.
            if line.dashed {
                let series = chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
                if line.first {
                    let sample = move |(x, y)| DashedPathElement::new([(x, y), (x + 24, y)], 6, 4, style);
                    series.label(line.name).legend(sample);
                }
            } else {
                let series = chart.draw_series(LineSeries::new(points, style))?;
                if line.first {
                    series
                        .label(line.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
                }
            }
            chart.draw_series(dots.into_iter().map(|at| Circle::new(at, 3, line.color.filled())))?;
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperLeft).label_font((FONT, 14)).legend_area_size(28);
        legend.background_style(WHITE.mix(0.9)).border_style(RGBColor(200, 200, 200)).draw()?;
        Ok(())
    }

    fn bandwidths(&self, area: &Area<'_>, lines: &[Line<'_>]) -> Drawn {
        let limits = self.limits();
        let measured = lines.iter().flat_map(|l| &l.rows).map(|r| r.busbw);
        let most = measured.chain(limits.iter().map(|(gbps, _)| *gbps)).fold(1e-3, f64::max);
        let mut chart = ChartBuilder::on(area);
        chart.caption("bus bandwidth (GB/s)", (FONT, 16)).margin(14).margin_right(24);
        chart.x_label_area_size(44).y_label_area_size(56);
        let y: RangedCoordf64 = (0.0..most * 1.1).into();
        let mut chart = chart.build_cartesian_2d(self.sizes(), y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("size").x_label_formatter(&|x| size(*x)).y_label_formatter(&|y| short(*y));
        mesh.x_labels(12).y_labels(10).max_light_lines(0).light_line_style(RGBColor(240, 240, 240));
        mesh.bold_line_style(RGBColor(225, 225, 225)).label_style((FONT, 13)).draw()?;
        let ends = self.ends();
        for (gbps, label) in limits {
            let style = ShapeStyle::from(&GREY).stroke_width(1);
            chart.draw_series(DashedLineSeries::new([(ends.0, gbps), (ends.1, gbps)], 2, 3, style))?;
            let at = (ends.0, gbps);
            let text = EmptyElement::at(at) + Text::new(label, (4, -15), (FONT, 13).into_font().color(&GREY));
            chart.draw_series([text])?;
        }
        for line in lines {
            let points: Vec<_> = line.rows.iter().map(|r| (r.size as f64, r.busbw)).collect();
            let dots = points.clone();
            if line.dashed {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, line.style()))?;
            } else {
                chart.draw_series(LineSeries::new(points, line.style()))?;
            }
            chart.draw_series(dots.into_iter().map(|at| Circle::new(at, 3, line.color.filled())))?;
        }
        Ok(())
    }

    /// What the links have, one way, with what it says: as specified, and as measured.
    fn limits(&self) -> Vec<(f64, String)> {
        let specified =
            self.nvlink.map(|n| (n.gbps, format!("{} NVLinks, {:.0} GB/s a direction", n.links, n.gbps)));
        let best = self.calibration.as_ref().and_then(|c| c.best_push());
        let pushed = best.map(|b| (b.gbps, format!("pushed to the next PE, {:.0} GB/s", b.gbps)));
        specified.into_iter().chain(pushed).collect()
    }

    /// Least and greatest size, apart.
    fn ends(&self) -> (f64, f64) {
        let sizes = || self.rows.iter().map(|r| r.size as f64).filter(|s| *s > 0.0);
        let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(1.0, f64::max));
        if least < most { (least, most) } else { (most / 2.0, most * 2.0) }
    }

    fn sizes(&self) -> LogCoord<f64> {
        let (least, most) = self.ends();
        (least..most).log_scale().base(2.0).into()
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines: Vec<Line<'_>> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|r| r.size > 0) {
            let index = names.iter().position(|n| *n == row.algorithm).unwrap_or_else(|| {
                names.push(&row.algorithm);
                names.len() - 1
            });
            let in_place = row.place == Place::InPlace;
            match lines.iter_mut().find(|l| (l.name, l.dashed) == (row.algorithm.as_str(), in_place)) {
                Some(line) => line.rows.push(row),
                None => {
                    let ours = row.ctas.is_some() || row.plan.is_some();
                    let color = COLORS[index % COLORS.len()];
                    let name = &*row.algorithm;
                    let first = lines.iter().all(|l| l.name != name);
                    lines.push(Line { name, first, color, dashed: in_place, ours, rows: vec![row] });
                }
            }
        }
        for line in &mut lines {
            line.rows.sort_by_key(|r| r.size);
        }
        lines
    }
}

impl Line<'_> {
    fn style(&self) -> ShapeStyle {
        ShapeStyle::from(&self.color).stroke_width(if self.ours { 3 } else { 2 })
    }
}

/// A size as people write it: 64K.
fn size(bytes: f64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes >= f64::from(1 << shift));
    unit.map_or_else(|| short(bytes), |(shift, unit)| short(bytes / f64::from(1 << shift)) + unit)
}

/// A number without needless digits.
fn short(n: f64) -> String {
    if n >= 10.0 || n.fract() == 0.0 { format!("{n:.0}") } else { format!("{n:.1}") }
}
