//! The text format of Prometheus, version 0.0.4, read strictly: whatever a scraper might take for
//! something else is a panic.

use std::collections::BTreeMap;

/// One metric with all that is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// What it means.
    pub help: String,
    /// Its values, in the order of the text.
    pub samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the metric; of histograms with `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// Names and values of its labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Sample {
    /// Whether it has these labels, among others.
    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        let has = |(name, value): &(&str, &str)| self.labels.get(*name).is_some_and(|v| v == value);
        labels.iter().all(has)
    }
}

/// All metrics of a text, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposition(pub BTreeMap<String, Metric>);

impl Exposition {
    /// Reads a text.
    ///
    /// # Panics
    /// It is not one of the format, or a histogram in it is none.
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        let mut current: Option<String> = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(about) = line.strip_prefix("# HELP ") else {
                let name = current
                    .as_ref()
                    .expect("a sample comes after its HELP and TYPE");
                let metric = metrics.get_mut(name).expect("the metric has begun");
                let sample = sample(line);
                assert!(is_of(&sample, name, &metric.kind), "{line} below {name}");
                metric.samples.push(sample);
                continue;
            };
            let (name, help) = about.split_once(' ').expect("a HELP has a text");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (named, kind) = kind
                .and_then(|l| l.split_once(' '))
                .expect("a TYPE after HELP");
            assert_eq!(named, name, "TYPE and HELP are of one metric");
            let metric = Metric {
                kind: kind.to_owned(),
                help: help.to_owned(),
                samples: Vec::new(),
            };
            let twice = metrics.insert(name.to_owned(), metric);
            assert!(twice.is_none(), "{name} comes twice");
            current = Some(name.to_owned());
        }
        for (name, metric) in &metrics {
            check(name, metric);
        }
        Self(metrics)
    }

    /// The one value of the metric or histogram's part `name` with exactly these labels.
    ///
    /// # Panics
    /// There is none.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.0.values().flat_map(|metric| &metric.samples);
        let found: Vec<f64> = samples
            .filter(|s| s.name == name && s.labels.len() == labels.len() && s.has(labels))
            .map(|sample| sample.value)
            .collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0]
    }

    /// The same, of what is counted.
    ///
    /// # Panics
    /// There is none, or it is no count.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let value = self.value(name, labels);
        assert!(
            value >= 0.0 && value.fract() == 0.0,
            "{name} {labels:?}: {value}"
        );
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as asserted
        let count = value as u64;
        count
    }
}

/// Whether a sample belongs to a metric of this name and kind.
fn is_of(sample: &Sample, metric: &str, kind: &str) -> bool {
    let Some(part) = sample.name.strip_prefix(metric) else {
        return false;
    };
    match kind {
        "counter" | "gauge" => part.is_empty(),
        "histogram" => matches!(part, "_bucket" | "_sum" | "_count"),
        _ => panic!("{metric} is of the unknown kind {kind}"),
    }
}

fn sample(line: &str) -> Sample {
    assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
    let (name_and_labels, value) = line.rsplit_once(' ').expect("a value behind a space");
    let (name, mut rest) = match name_and_labels.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').expect("labels have an end")),
        None => (name_and_labels, ""),
    };
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest
            .split_once("=\"")
            .expect("a label has a value in quotes");
        assert!(is_name(label), "{line}");
        let (value, after) = quoted(after);
        assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
        rest = match after.strip_prefix(',') {
            Some(more) => more,
            None if after.is_empty() => after,
            None => panic!("labels are separated by commas: {line}"),
        };
    }
    let value = match value {
        "+Inf" => f64::INFINITY,
        number => number.parse().expect("a value is a number"),
    };
    Sample {
        name: name.to_owned(),
        labels,
        value,
    }
}

/// The text up to the closing quote, and what is behind it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('"' | '\\'))) => escaped,
                other => panic!("an escape that the format does not know: {other:?}"),
            }),
            character => value.push(character),
        }
    }
    panic!("a value without a closing quote: {text}")
}

fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_lowercase())
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Values that no counter and no histogram may have, labels that occur twice.
fn check(name: &str, metric: &Metric) {
    assert!(!metric.samples.is_empty(), "{name} has no value");
    for (index, sample) in metric.samples.iter().enumerate() {
        let same = |s: &Sample| s.name == sample.name && s.labels == sample.labels;
        assert!(
            !metric.samples[..index].iter().any(same),
            "twice: {sample:?}"
        );
        assert!(sample.value.is_finite(), "{sample:?}");
        assert!(metric.kind == "gauge" || sample.value >= 0.0, "{sample:?}");
    }
    if metric.kind != "histogram" {
        return;
    }
    // By the labels but the bound.
    let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    let parts = |part: &'static str| {
        let wanted = format!("{name}_{part}");
        metric
            .samples
            .iter()
            .filter(move |sample| sample.name == wanted)
    };
    for sample in parts("bucket") {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le").expect("a bucket has a bound");
        let bound = match &*bound {
            "+Inf" => f64::INFINITY,
            bound => bound.parse().expect("a bound is a number"),
        };
        buckets
            .entry(labels)
            .or_default()
            .push((bound, sample.value));
    }
    for (labels, buckets) in &buckets {
        let grows = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(
            buckets.windows(2).all(grows),
            "{name} {labels:?}: {buckets:?}"
        );
        let (last, all) = buckets[buckets.len() - 1];
        assert!(last.is_infinite(), "{name} {labels:?}");
        let count: Vec<_> = parts("count").filter(|s| s.labels == *labels).collect();
        assert!(
            matches!(count[..], [count] if count.value.to_bits() == all.to_bits()),
            "{name} {labels:?}"
        );
        let sums = parts("sum").filter(|s| s.labels == *labels).count();
        assert_eq!(sums, 1, "{name} {labels:?}");
    }
    for part in ["count", "sum"] {
        assert_eq!(parts(part).count(), buckets.len(), "{name}_{part}");
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn what_a_text_says() {
        let text = "# HELP a_total Some.\n# TYPE a_total counter\na_total{b=\"x\\\\,\\\"}\"} 2\n\
                    # HELP h Times.\n# TYPE h histogram\nh_sum 1.5\nh_count 3\n\
                    h_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 3\n";
        let read = Exposition::parse(text);
        assert_eq!(read.0["a_total"].help, "Some.");
        assert_eq!(read.count("a_total", &[("b", "x\\,\"}")]), 2);
        assert_eq!(read.count("h_bucket", &[("le", "1.0")]), 1);
    }

    #[test]
    fn what_is_no_text_of_the_format() {
        for text in [
            "a 1\n",
            "# HELP a A.\na 1\n",
            "# HELP a A.\n# TYPE a gauge\n",
            "# HELP a A.\n# TYPE a gauge\nb 1\n",
            "# HELP a A.\n# TYPE a gauge\na 1\na 2\n",
            "# HELP a A.\n# TYPE a gauge\na{b=\"c} 1\n",
            "# HELP a A.\n# TYPE a counter\na -1\n",
            "# HELP a A.\n# TYPE a gauge\na 1\n# EOF\n",
            "# HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 2\nh_bucket{le=\"+Inf\"} 1\n",
            "# HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 1\nh_bucket{le=\"1\"} 1\n",
            "# HELP h H.\n# TYPE h histogram\nh_sum 1\nh_count 1\nh_bucket{le=\"1\"} 2\n\
             h_bucket{le=\"+Inf\"} 1\n",
        ] {
            assert!(catch_unwind(|| Exposition::parse(text)).is_err(), "{text}");
        }
    }
}
