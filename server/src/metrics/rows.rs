//! Metrics whose values are known at a scrape, rather than kept.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Names and values of labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One value of a metric.
pub(super) trait Value: fmt::Debug + Send + Sync + 'static {
    /// What such values are.
    const TYPE: MetricType;

    /// Writes it, its labels being written already.
    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result;
}

/// What only grows.
#[derive(Debug)]
pub(super) struct Total(pub(super) f64);

impl Value for Total {
    const TYPE: MetricType = MetricType::Counter;

    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, f64, f64>(&self.0, None)
    }
}

/// What goes up and down.
#[derive(Debug)]
pub(super) struct Level(pub(super) f64);

impl Value for Level {
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0)
    }
}

/// How often something was how large.
#[derive(Debug)]
pub(super) struct Spread {
    /// Upper bounds, infinity last, and how often it was in the class below each.
    pub(super) classes: Vec<(f64, u64)>,
    /// All of it together.
    pub(super) sum: Duration,
}

impl Value for Spread {
    const TYPE: MetricType = MetricType::Histogram;

    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let count = self.classes.iter().map(|(_, n)| n).sum();
        let sum = self.sum.as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &self.classes, None)
    }
}

/// The values of one metric, each with its labels.
#[derive(Debug)]
struct Rows<V>(Vec<(Labels, V)>);

impl<V: Value> EncodeMetric for Rows<V> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, value) in &self.0 {
            value.encode(&mut encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        V::TYPE
    }

    /// Then neither its name nor its help are written.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Registers a metric with a value for each set of labels. The `help` gets a full stop; the name of
/// what only grows gets `_total`.
pub(super) fn register<V: Value>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    rows: impl IntoIterator<Item = (Labels, V)>,
) {
    registry.register(name, help, Rows(rows.into_iter().collect()));
}

/// The same with one label.
pub(super) fn register_by<V: Value, L: Into<String>>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    rows: impl IntoIterator<Item = (L, V)>,
) {
    let rows = rows
        .into_iter()
        .map(|(of, value)| (vec![(label, of.into())], value));
    register(registry, name, help, rows);
}

/// The same with no label, and one value.
pub(super) fn register_one<V: Value>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    value: V,
) {
    register(registry, name, help, [(Labels::new(), value)]);
}
