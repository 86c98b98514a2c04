//! Bars of seconds per device, a panel for each strategy.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::scenarios::Compared;
use crate::tables::{Spread, label};

const BAR: RGBColor = RGBColor(70, 110, 160);
const BOUND: RGBColor = RGBColor(200, 60, 40);

/// Draws a row of panels for each scenario.
pub(crate) fn draw(path: &Path, rows: &[&Compared]) -> Result<(), Box<dyn Error>> {
    let height = 320 * u32::try_from(rows.len())?;
    let root = SVGBackend::new(path, (1200, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, row) in root.split_evenly((rows.len(), 1)).iter().zip(rows) {
        let comparison = &row.comparison;
        let bound = comparison.lower_bound_seconds;
        let title = format!(
            "{}: seconds of each device (line: lower bound {bound:.1} s)",
            row.name
        );
        let area = area.margin(8, 0, 0, 0).titled(&title, ("sans-serif", 18))?;
        let maxima = comparison
            .strategies
            .iter()
            .map(|(_, seconds)| Spread::of(seconds).max);
        let top = 1.08 * maxima.fold(0.0, f64::max);
        let panels = area.split_evenly((1, comparison.strategies.len()));
        for (panel, (strategy, seconds)) in panels.iter().zip(comparison.strategies.iter().rev()) {
            let devices = seconds.len() as f64;
            let Spread { max, mean, .. } = Spread::of(seconds);
            let caption = format!("{}: max / mean {:.3}", label(*strategy), max / mean);
            let mut chart = ChartBuilder::on(panel)
                .margin(8)
                .caption(caption, ("sans-serif", 15))
                .x_label_area_size(8)
                .y_label_area_size(40)
                .build_cartesian_2d(0.0..devices, 0.0..top)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .max_light_lines(0)
                .x_labels(0)
                .y_labels(6)
                .y_label_formatter(&|seconds| format!("{seconds:.0}"))
                .draw()?;
            // Many bars have no room for gaps between them.
            let gap = if seconds.len() > 16 { 0.0 } else { 0.1 };
            let bars = seconds.iter().enumerate().map(|(device, &seconds)| {
                let (left, right) = (device as f64 + gap, device as f64 + 1.0 - gap);
                Rectangle::new([(left, 0.0), (right, seconds)], BAR.filled())
            });
            chart.draw_series(bars)?;
            let line =
                PathElement::new(vec![(0.0, bound), (devices, bound)], BOUND.stroke_width(2));
            chart.draw_series([line])?;
        }
    }
    root.present()?;
    Ok(())
}
