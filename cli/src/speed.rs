//! How fast a job went, as people read it.

use assay_api::{BaselineSource, DevicePerformance, JobResult};

use crate::numbers::{grouped, rate};
use crate::table::{self, Column};

const COLUMNS: [Column; 9] = [
    Column::name("worker", 0),
    Column::text("device", 0),
    Column::number("shards", 3),
    Column::number("tokens", 1),
    Column::number("busy s", 0),
    Column::number("idle s", 1),
    Column::number("claim s", 4),
    Column::number("commit s", 5),
    Column::number("load s", 2),
];

/// What is known of the speed-up: all devices together, one alone, the one over the other.
pub(crate) fn facts(result: &JobResult) -> Vec<String> {
    let performance = &result.performance;
    let mut facts = Vec::new();
    let took_part = performance.devices.iter().filter(|d| d.shards > 0).count();
    if let Some(together) = performance.distributed_tokens_per_second {
        let devices = match took_part {
            1 => "1 device".to_owned(),
            many => format!("{many} devices together"),
        };
        let share = performance.communication_share.map(|share| {
            let percent = 100.0 * share;
            format!(", {percent:.2} % of their time waiting for the ledger")
        });
        let share = share.unwrap_or_default();
        facts.push(format!("{} tokens/s by {devices}{share}", rate(together)));
    }
    if let Some(baseline) = &performance.baseline {
        let source = match baseline.source {
            BaselineSource::Measured => "measured in this job",
            BaselineSource::Calibrated => "measured in an earlier job",
        };
        facts.push(format!(
            "{} tokens/s by one device alone, {source}",
            rate(baseline.tokens_per_second)
        ));
    }
    if let Some(speedup) = performance.speedup {
        let efficiency = performance.efficiency.map(|efficiency| {
            let percent = 100.0 * efficiency;
            format!(", {percent:.1} % of what the devices do alone")
        });
        let efficiency = efficiency.unwrap_or_default();
        facts.push(format!("{speedup:.2} times one device{efficiency}"));
    }
    facts
}

/// What was computed again, if anything.
pub(crate) fn audited(result: &JobResult) -> Vec<String> {
    if result.audited <= 0.0 {
        return Vec::new();
    }
    vec![format!(
        "{:.1} % of the tokens were computed again elsewhere, and agree",
        100.0 * result.audited
    )]
}

/// The table of what each device did.
pub(crate) fn devices(result: &JobResult, width: Option<usize>) -> String {
    if result.performance.devices.is_empty() {
        return "no device has computed anything of it".to_owned();
    }
    let rows: Vec<_> = result.performance.devices.iter().map(row).collect();
    table::render(&COLUMNS, &rows, width)
}

fn row(device: &DevicePerformance) -> Vec<String> {
    let seconds = |value: f64| format!("{value:.2}");
    vec![
        device.worker.clone(),
        device.device.clone(),
        grouped(device.shards),
        grouped(device.tokens),
        seconds(device.busy_seconds),
        seconds(device.idle_seconds),
        seconds(device.claim_seconds),
        seconds(device.commit_seconds),
        seconds(device.load_seconds),
    ]
}

#[cfg(test)]
mod tests {
    use assay_api::{Baseline, Performance};

    use super::*;

    fn result(performance: Performance) -> JobResult {
        let mut result = crate::report::tests::result(vec![]);
        result.performance = performance;
        result
    }

    fn device(name: &str) -> DevicePerformance {
        DevicePerformance {
            worker: "host-1".to_owned(),
            device: name.to_owned(),
            device_kind: "cpu".to_owned(),
            shards: 12,
            tokens: 24_576,
            busy_seconds: 61.25,
            claim_seconds: 0.04,
            commit_seconds: 0.05,
            load_seconds: 2.1,
            idle_seconds: 0.5,
        }
    }

    #[test]
    fn a_speed_up_is_told_with_what_it_is_against() {
        let told = facts(&result(Performance {
            baseline: Some(Baseline {
                source: BaselineSource::Measured,
                tokens_per_second: 400.0,
                device_kind: "cpu".to_owned(),
            }),
            distributed_tokens_per_second: Some(780.0),
            speedup: Some(1.95),
            efficiency: Some(0.975),
            communication_share: Some(0.0031),
            devices: vec![device("cpu:0"), device("cpu:1")],
            ..Performance::default()
        }));
        assert_eq!(
            told,
            [
                "780 tokens/s by 2 devices together, 0.31 % of their time waiting for the ledger",
                "400 tokens/s by one device alone, measured in this job",
                "1.95 times one device, 97.5 % of what the devices do alone",
            ]
        );
        assert!(facts(&result(Performance::default())).is_empty());
    }

    #[test]
    fn without_devices_there_is_no_table() {
        let text = devices(&result(Performance::default()), None);
        assert_eq!(text, "no device has computed anything of it");
    }

    #[test]
    fn the_table_of_devices_fits_the_terminal() {
        let result = result(Performance {
            devices: vec![device("cpu:0"), device("cpu:1")],
            ..Performance::default()
        });
        for width in [60, 80, 120] {
            let table = devices(&result, Some(width));
            assert!(table.contains("61.25"), "{table}");
            assert!(
                table
                    .lines()
                    .all(|line| crate::output::columns(line) <= width),
                "{table}"
            );
        }
    }
}
