//! Plots as SVG, readable on a light and a dark page: panels of bars, and panels of lines.

use crate::figures::Spread;
use std::fmt::Write as _;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}\
.panel{font-weight:600}.small{font-size:11px;fill:#59636e}.end{text-anchor:end}.middle{text-anchor:middle}\
.axis{stroke:#d1d9e0;stroke-width:1}.mark{stroke:#59636e;stroke-width:1;stroke-dasharray:3 3}\
.spread{stroke:#1f2328;stroke-width:1.5}.ours{fill:#bf5a00}.like{fill:#e0a070}.base{fill:#57606a}.floor{fill:#8c959f}.peer{fill:#9fb6d1}\
.line{fill:none;stroke-width:2}.s0{stroke:#bf5a00}.s1{stroke:#57606a}.s2{stroke:#2f6fb5}\
.d0{fill:#bf5a00}.d1{fill:#57606a}.d2{fill:#2f6fb5}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.axis{stroke:#3d444d}.mark{stroke:#9198a1}\
.spread{stroke:#e6edf3}.ours{fill:#f0883e}.like{fill:#a0673a}.base{fill:#8b949e}.floor{fill:#59636e}.peer{fill:#3d5a80}\
.s0{stroke:#f0883e}.s1{stroke:#9198a1}.s2{stroke:#58a6ff}.d0{fill:#f0883e}.d1{fill:#9198a1}.d2{fill:#58a6ff}}";

/// A picture under way.
struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut svg = Svg { body: String::new(), width, height };
        svg.text(16.0, 26.0, "title", title);
        svg
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    fn line(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" class=\"{class}\"/>"
        );
    }

    fn finish(self) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<style>{STYLE}</style>\n{}</svg>\n",
            self.body
        )
    }
}

/// One column of bars.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    /// Longer bars are cut here.
    pub(crate) most: f64,
    /// Where a line stands: nginx, or the goal.
    pub(crate) mark: Option<f64>,
    /// One for each label.
    pub(crate) values: Vec<Option<Spread>>,
}

const LABELS: f64 = 190.0;
const ROW: f64 = 24.0;
const COLUMN: f64 = 168.0;
const NUMBER: f64 = 46.0;
const TOP: f64 = 74.0;
/// So that title and foot have room.
const LEAST: f64 = 760.0;

/// Rows of labels with their class, and panels of bars beside them: the middle as bar, the spread as line.
pub(crate) fn bars(title: &str, foot: &str, labels: &[(String, &str)], panels: &[Bars]) -> String {
    let width = (LABELS + panels.len() as f64 * COLUMN + 16.0).max(LEAST);
    let bottom = TOP + labels.len() as f64 * ROW;
    let mut svg = Svg::new(width, bottom + 34.0, title);
    for (row, (label, _)) in labels.iter().enumerate() {
        let y = TOP + row as f64 * ROW + 16.0;
        svg.text(LABELS - 10.0, y, "end", label);
    }
    for (column, panel) in panels.iter().enumerate() {
        let left = LABELS + column as f64 * COLUMN;
        let room = COLUMN - NUMBER - 14.0;
        let place = |value: f64| left + room * value.clamp(0.0, panel.most) / panel.most;
        svg.text(left, TOP - 22.0, "panel", &panel.title);
        svg.text(left, TOP - 7.0, "small", panel.unit);
        svg.line((left, TOP), (left, bottom), "axis");
        for (row, (value, (_, class))) in panel.values.iter().zip(labels).enumerate() {
            let y = TOP + row as f64 * ROW;
            let Some(value) = value else {
                svg.text(left + 5.0, y + 16.0, "small", "–");
                continue;
            };
            svg.rect((left, y + 5.0, place(value.median) - left, 14.0), class);
            svg.line((place(value.least), y + 12.0), (place(value.most), y + 12.0), "spread");
            let more = if value.median > panel.most { "› " } else { "" };
            let number = format!("{more}{}", short(value.median));
            svg.text(place(value.most.max(value.median)) + 5.0, y + 16.0, "small", &number);
        }
        if let Some(mark) = panel.mark {
            svg.line((place(mark), TOP), (place(mark), bottom), "mark");
        }
    }
    svg.text(16.0, bottom + 22.0, "small", foot);
    svg.finish()
}

/// One panel of lines.
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x_unit: &'static str,
    pub(crate) y_unit: &'static str,
    /// Whether x grows by factors.
    pub(crate) by_factors: bool,
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

const PANEL: (f64, f64) = (400.0, 250.0);

/// Panels of lines, two in a row. All y begin at zero.
pub(crate) fn lines(title: &str, foot: &str, panels: &[Lines]) -> String {
    let rows = panels.len().div_ceil(2) as f64;
    let (width, height) = (2.0 * PANEL.0 + 32.0, 44.0 + rows * PANEL.1 + 26.0);
    let mut svg = Svg::new(width, height, title);
    for (at, panel) in panels.iter().enumerate() {
        let left = 16.0 + (at % 2) as f64 * PANEL.0;
        let top = 44.0 + (at / 2) as f64 * PANEL.1;
        line_panel(&mut svg, panel, left, top);
    }
    svg.text(16.0, height - 10.0, "small", foot);
    svg.finish()
}

fn line_panel(svg: &mut Svg, panel: &Lines, left: f64, top: f64) {
    let points = || panel.series.iter().flat_map(|(_, points)| points);
    let scaled = |x: f64| if panel.by_factors { x.max(1.0).log10() } else { x };
    let (mut least, mut most, mut high) = (f64::MAX, f64::MIN, 0.0_f64);
    for (x, y) in points() {
        (least, most, high) = (least.min(scaled(*x)), most.max(scaled(*x)), high.max(*y));
    }
    if least > most {
        return;
    }
    let high = round_up(high);
    let (x0, x1, y0, y1) = (left + 48.0, left + PANEL.0 - 40.0, top + 192.0, top + 42.0);
    let across = |x: f64| x0 + (x1 - x0) * (scaled(x) - least) / (most - least).max(1e-9);
    let up = |y: f64| y0 - (y0 - y1) * y / high.max(1e-9);
    svg.text(left, top + 14.0, "panel", &panel.title);
    svg.text(left, top + 31.0, "small", panel.y_unit);
    for step in 0..=4 {
        let y = high * f64::from(step) / 4.0;
        svg.line((x0, up(y)), (x1, up(y)), "axis");
        svg.text(x0 - 6.0, up(y) + 4.0, "small end", &short(y));
    }
    if let Some((_, longest)) = panel.series.iter().max_by_key(|(_, points)| points.len()) {
        // From the right, and none that would stand in another.
        let mut free = f64::MAX;
        for (x, _) in longest.iter().rev().filter(|(x, _)| x.is_finite()) {
            let place = across(*x);
            if place <= free {
                svg.text(place, y0 + 16.0, "small middle", &short(*x));
                free = place - 44.0;
            }
        }
    }
    svg.text((x0 + x1) / 2.0, y0 + 32.0, "small middle", panel.x_unit);
    let mut beside = left + 110.0;
    for (at, (name, points)) in panel.series.iter().enumerate() {
        let path: String =
            points.iter().map(|(x, y)| format!("{:.1},{:.1} ", across(*x), up(*y))).collect();
        let _ = writeln!(svg.body, "<polyline points=\"{}\" class=\"line s{at}\"/>", path.trim());
        for (x, y) in points {
            let (x, y) = (across(*x), up(*y));
            let _ =
                writeln!(svg.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"d{at}\"/>");
        }
        if panel.series.len() > 1 {
            svg.rect((beside, top + 24.0, 10.0, 8.0), &format!("d{at}"));
            svg.text(beside + 14.0, top + 32.0, "small", name);
            beside += 26.0 + 6.4 * name.chars().count() as f64;
        }
    }
}

/// The next round number: 1, 2, 4, 5, 8 and their tenfolds.
fn round_up(value: f64) -> f64 {
    let unit = 10_f64.powf(value.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    unit * steps.into_iter().find(|step| step * unit >= value).unwrap_or(10.0)
}

/// As few digits as tell it.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{:.1} M", value / 1e6)
    } else if size >= 10_000.0 {
        format!("{:.0} k", value / 1e3)
    } else if size >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
