//! Devices that change: their speed, or whether they are there at all.

use assay_scoring::{SimulatedDevice, SimulationTimes};
use proptest::prelude::*;

use crate::jobs::{CORE, Draws, flops, least, planned, unevenness};
use crate::run;

/// A device that changes between `CORE` and four times that, every 5 to 60 seconds.
fn changing(draws: &mut Draws, kind: u32) -> SimulatedDevice {
    let mut from = 0.0;
    let mut speeds = Vec::new();
    while from < 10_000.0 {
        speeds.push((from, CORE * (1.0 + 3.0 * draws.uniform())));
        from += 5.0 + 55.0 * draws.uniform();
    }
    SimulatedDevice {
        speeds,
        ..SimulatedDevice::steady(kind, 0.0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn speeds_that_differ_and_change(seed in any::<u64>(), kinds in 1_u32..4) {
        let mut draws = Draws(seed);
        let plan = planned(&draws.log_normal(2000, 500.0, 1.2), 512);
        let devices: Vec<_> = (0..8).map(|i| changing(&mut draws, i % kinds)).collect();
        let run = run(&plan, &devices);
        let unevenness = unevenness(&run.device_seconds);
        prop_assert!(unevenness <= 1.03, "{} {:?}", unevenness, run);
        let over = run.seconds / least(&devices, flops(&plan));
        prop_assert!((1.0..=1.03).contains(&over), "{} {:?}", over, run);
        prop_assert!(run.vain_flops <= 0.02 * flops(&plan), "{:?}", run);
    }

    /// Whatever a device leaves behind, others do after its lease: at most two seconds of work and
    /// a shard.
    #[test]
    fn devices_that_join_late_and_leave(
        seed in any::<u64>(),
        stays in prop::collection::vec((0.0..200.0, prop::option::of(0.0..400.0)), 1..12),
    ) {
        let mut draws = Draws(seed);
        let plan = planned(&draws.log_normal(1000, 500.0, 1.2), 512);
        let mut devices = vec![SimulatedDevice::steady(0, CORE)];
        devices.extend(stays.iter().map(|&(joins, stays)| SimulatedDevice {
            joins,
            leaves: stays.map(|seconds: f64| joins + seconds),
            ..SimulatedDevice::steady(0, CORE * (1.0 + draws.uniform()))
        }));
        let run = run(&plan, &devices);
        let largest = plan.shards.iter().map(|shard| shard.flops).fold(0.0, f64::max);
        let left = stays.iter().filter(|(_, stays)| stays.is_some()).count() as f64;
        let lost = left * (2.0 * 2.0 * CORE + largest);
        let most = 1.03 * least(&devices, flops(&plan) + lost)
            + SimulationTimes::default().lease
            + 2.0 * largest / CORE;
        prop_assert!(run.seconds <= most, "{} {:?}", most, run);
        prop_assert!(run.vain_flops <= lost + 0.03 * flops(&plan), "{:?}", run);
    }
}

#[test]
fn a_device_that_leaves_at_the_end_costs_no_more_than_its_lease() {
    let plan = planned(&Draws(1).log_normal(1000, 500.0, 1.2), 512);
    let alone = flops(&plan) / 8.0 / CORE;
    for before in [0.1, 1.0, 3.0, 10.0] {
        let mut devices = vec![SimulatedDevice::steady(0, CORE); 8];
        devices[3].leaves = Some(alone - before);
        let run = run(&plan, &devices);
        let most = alone + SimulationTimes::default().lease + 3.0;
        assert!(run.seconds <= most, "{before} {most} {run:?}");
    }
}

#[test]
fn the_same_arguments_give_the_same_run() {
    let mut draws = Draws(3);
    let plan = planned(&draws.pareto(500, 100.0, 1.1), 512);
    let devices: Vec<_> = (0..8).map(|kind| changing(&mut draws, kind)).collect();
    assert_eq!(run(&plan, &devices), run(&plan, &devices));
}
