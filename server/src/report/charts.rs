//! Drawings of a report. The texts beside them are HTML, which keeps its size on narrow screens while
//! a drawing is stretched to the width there is.

use assay_store::Histogram;
use maud::{Markup, html};

use super::figures::{count, rounded};

/// Width of a drawing in its own units.
const WIDTH: f64 = 1000.0;
/// Height of a histogram.
const HEIGHT: f64 = 100.0;
/// Height of an error bar.
const BAR: f64 = 20.0;

/// A mean with its interval.
pub(super) struct Interval {
    /// What it is of.
    pub(super) label: String,
    pub(super) mean: f64,
    /// Half-width; none if there is no error.
    pub(super) half: Option<f64>,
}

/// Error bars on one axis, one below the other.
pub(super) fn intervals(intervals: &[Interval]) -> Markup {
    let ends = |end: f64| {
        intervals
            .iter()
            .map(move |i| i.mean + end * i.half.unwrap_or(0.0))
    };
    let low = ends(-1.0).fold(f64::INFINITY, f64::min);
    let high = ends(1.0).fold(f64::NEG_INFINITY, f64::max);
    // A lone mean without an error lies in the middle of something.
    let margin = ((high - low) * 0.05).max(high.abs() * 1e-3).max(1e-9);
    let (low, high) = (low - margin, high + margin);
    let at = |value: f64| place((value - low) / (high - low) * WIDTH);
    html! {
        div.intervals {
            @for interval in intervals {
                div.label { (interval.label) }
                svg viewBox=(format!("0 0 {WIDTH} {BAR}")) preserveAspectRatio="none" role="img"
                    aria-label=(spoken(interval)) {
                    line.axis x1="0" x2=(WIDTH) y1="10" y2="10" {}
                    @if let Some(half) = interval.half {
                        line.error x1=(at(interval.mean - half)) x2=(at(interval.mean + half))
                            y1="10" y2="10" {}
                        @for end in [-half, half] {
                            line.error x1=(at(interval.mean + end)) x2=(at(interval.mean + end))
                                y1="4" y2="16" {}
                        }
                    }
                    line.mean x1=(at(interval.mean)) x2=(at(interval.mean)) y1="2" y2="18" {}
                }
                div.value { (written(interval)) }
            }
            div.label {}
            div.scale { span { (rounded(low, 3)) } span { "nats per token" } span { (rounded(high, 3)) } }
            div.value {}
        }
    }
}

fn written(interval: &Interval) -> String {
    let mean = rounded(interval.mean, 4);
    match interval.half {
        None => mean,
        Some(half) => format!("{mean} \u{b1} {}", rounded(half, 4)),
    }
}

fn spoken(interval: &Interval) -> String {
    let half = interval.half.map_or_else(
        || "without an error".to_owned(),
        |half| format!("95 % interval of plus or minus {}", rounded(half, 4)),
    );
    let mean = rounded(interval.mean, 4);
    format!("{}: mean NLL {mean}, {half}", interval.label)
}

/// How many documents have which mean NLL.
pub(super) fn histogram(histogram: &Histogram) -> Markup {
    let highest = histogram.bins.iter().copied().max().unwrap_or(0).max(1);
    let width = WIDTH / histogram.bins.len().max(1) as f64;
    let documents: u64 = histogram.bins.iter().sum();
    let spoken = format!(
        "Histogram of the mean NLL of {} documents, from {} to {} nats per token",
        count(documents),
        rounded(histogram.lowest, 3),
        rounded(histogram.highest, 3)
    );
    html! {
        figure {
            figcaption { "Mean NLL of " (count(documents)) " documents" }
            svg.histogram viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none"
                role="img" aria-label=(spoken) {
                @for (index, &documents) in histogram.bins.iter().enumerate() {
                    @if documents > 0 {
                        // A single document among a million is still seen.
                        @let height = (documents as f64 / highest as f64 * HEIGHT).max(1.0);
                        rect x=(place(index as f64 * width + width * 0.04)) width=(place(width * 0.92))
                            y=(place(HEIGHT - height)) height=(place(height)) {
                            title { (count(documents)) " documents" }
                        }
                    }
                }
                line.axis x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            }
            div.scale {
                span { (edge(histogram.from, histogram.lowest, "\u{2264} ")) }
                span { "nats per token" }
                span { (edge(histogram.to, histogram.highest, "\u{2265} ")) }
            }
        }
    }
}

/// The end of an axis, which says whether something lies beyond it.
#[expect(
    clippy::float_cmp,
    reason = "both come of one document if nothing lies beyond"
)]
fn edge(end: f64, extreme: f64, beyond: &str) -> String {
    let sign = if end == extreme { "" } else { beyond };
    format!("{sign}{}", rounded(end, 3))
}

/// A place in a drawing: a tenth of a unit is less than a pixel.
fn place(value: f64) -> String {
    rounded(value, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_bar_lies_where_its_mean_does() {
        let drawn = intervals(&[
            Interval {
                label: "a".to_owned(),
                mean: 2.0,
                half: Some(1.0),
            },
            Interval {
                label: "b".to_owned(),
                mean: 3.0,
                half: None,
            },
        ])
        .into_string();
        // From 0.9 to 3.1: 1, 2 and 3 are at 1/22, 1/2 and 21/22 of the width.
        for expected in [
            "x1=\"45.5\" x2=\"954.5\"",
            "x1=\"500.0\"",
            "2.0000 \u{b1} 1.0000",
        ] {
            assert!(drawn.contains(expected), "{expected}: {drawn}");
        }
        assert_eq!(drawn.matches("class=\"mean\"").count(), 2);
        assert!(drawn.contains("b: mean NLL 3.0000, without an error"));
    }

    #[test]
    fn a_lone_mean_has_an_axis() {
        let lone = Interval {
            label: "a".to_owned(),
            mean: 0.0,
            half: None,
        };
        let drawn = intervals(&[lone]).into_string();
        assert!(
            drawn.contains("x1=\"500.0\"") && !drawn.contains("NaN"),
            "{drawn}"
        );
    }

    #[test]
    fn a_histogram_says_what_lies_beyond_its_ends() {
        let drawn = histogram(&Histogram {
            from: 1.0,
            to: 3.0,
            bins: vec![4, 0, 1_000_000],
            lowest: 1.0,
            highest: 9.5,
        })
        .into_string();
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert!(
            drawn.contains("\u{2265} 3.000") && drawn.contains("<span>1.000"),
            "{drawn}"
        );
        assert!(drawn.contains("1,000,004 documents"));
        assert!(drawn.contains("height=\"1.0\"") && drawn.contains("height=\"100.0\""));
    }
}
