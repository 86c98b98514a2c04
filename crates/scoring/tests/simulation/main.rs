//! How evenly the plan and the policy keep devices busy, in simulated runs.

mod changes;
mod jobs;
mod strategies;

use assay_scoring::{
    DatasetPlan, PlanConstants, SimulatedDevice, SimulatedRun, SimulationTimes, plan, simulate,
};
use jobs::{CORE, COST, Draws, GPU, flops, planned, scope, unevenness, wikitext2, windows};
use proptest::prelude::*;

/// Runs a plan; all of it gets done.
fn run(plan: &DatasetPlan, devices: &[SimulatedDevice]) -> SimulatedRun {
    let run = simulate(&plan.shards, &COST, devices, &SimulationTimes::default());
    assert_eq!(run.unfinished, 0);
    run
}

/// `count` equal devices.
fn equal(count: usize, flops_per_second: f64) -> Vec<SimulatedDevice> {
    vec![SimulatedDevice::steady(0, flops_per_second); count]
}

/// Seconds that these documents take on equal devices: no less than all work divided by them, and
/// at most that, the largest shard and some claims.
fn check_bounds(lengths: &[u64], window: u32, count: usize, flops_per_second: f64) {
    let plan = planned(lengths, window);
    let run = run(&plan, &equal(count, flops_per_second));
    let least = flops(&plan) / flops_per_second / count as f64;
    let largest = plan
        .shards
        .iter()
        .map(|shard| shard.flops)
        .fold(0.0, f64::max);
    let claims = run.claims as f64 * SimulationTimes::default().claim;
    let most = least + largest / flops_per_second + claims;
    assert!(
        least <= run.seconds && run.seconds <= most,
        "{least} {run:?} {most}"
    );
}

#[test]
fn wikitext2_on_eight_equal_devices() {
    let plan = planned(&wikitext2(), 512);
    assert_eq!(windows(&plan), 639);
    let cores = run(&plan, &equal(8, CORE));
    let unevenness = unevenness(&cores.device_seconds);
    assert!(unevenness <= 1.01, "{unevenness} {cores:?}");
    let over = cores.seconds * 8.0 * CORE / flops(&plan);
    assert!(over <= 1.01, "{over} of the time that all work needs");

    // GPUs need 0.6 s, of which a window is 1.2 % and a claim 0.8 %: they end one of each apart.
    let gpus = run(&plan, &equal(8, GPU)).device_seconds;
    let first = gpus.iter().copied().fold(f64::INFINITY, f64::min);
    let last = gpus.iter().copied().fold(0.0, f64::max);
    let window = flops(&planned(&[512], 512)) / GPU;
    let apart = SimulationTimes::default().claim + window;
    assert!(last - first <= apart * (1.0 + 1e-9), "{gpus:?}");
}

/// The ends of twenty datasets are one end of their job.
#[test]
fn twenty_datasets_on_eight_equal_devices() {
    let datasets: Vec<_> = (0..20)
        .map(|seed| Draws(seed).log_normal(100, 500.0, 1.2))
        .collect();
    let scopes: Vec<_> = datasets.iter().map(|lengths| scope(lengths, 512)).collect();
    let plans = plan(&scopes, &COST, &PlanConstants::default()).unwrap();
    let shards: Vec<_> = plans.iter().flat_map(|plan| &plan.shards).collect();
    assert!(shards.len() < 2000, "{}", shards.len());
    let devices = equal(8, CORE);
    let run = simulate(shards, &COST, &devices, &SimulationTimes::default());
    let unevenness = unevenness(&run.device_seconds);
    assert!(
        run.unfinished == 0 && unevenness <= 1.01,
        "{unevenness} {run:?}"
    );
}

#[test]
fn fifty_windows_on_two_equal_devices() {
    let plan = planned(&[1024; 50], 1024);
    assert_eq!(windows(&plan), 50);
    let run = run(&plan, &equal(2, CORE));
    let efficiency = flops(&plan) / CORE / 2.0 / run.seconds;
    assert!(efficiency >= 0.97, "{efficiency} {run:?}");
}

#[test]
fn fewer_documents_than_devices() {
    for flops_per_second in [CORE, GPU] {
        for count in [1, 2, 8, 64, 1000] {
            check_bounds(&[1], 512, count, flops_per_second);
            check_bounds(&[500], 512, count, flops_per_second);
            check_bounds(&[100, 300, 1000], 512, count, flops_per_second);
            check_bounds(&[100_000], 512, count, flops_per_second);
            check_bounds(&[3, 1, 50_000], 2048, count, flops_per_second);
        }
    }
    // A single window is one device's, whoever else is there.
    let run = run(&planned(&[500], 512), &equal(8, CORE));
    assert_eq!((run.claims, run.copies), (1, 0));
}

/// Documents with a heavy tail, by one of two laws, of some 300 or 500 windows per device.
fn heavy_tailed() -> impl Strategy<Value = Vec<u64>> {
    (any::<u64>(), any::<bool>()).prop_map(|(seed, pareto)| {
        let mut draws = Draws(seed);
        if pareto {
            draws.pareto(10_000, 200.0, 1.1)
        } else {
            draws.log_normal(8000, 500.0, 1.2)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn heavy_tails_on_64_equal_devices(
        lengths in heavy_tailed(), flops_per_second in CORE..GPU,
    ) {
        let plan = planned(&lengths, 512);
        prop_assert!(windows(&plan) >= 200 * 64, "{}", windows(&plan));
        let run = run(&plan, &equal(64, flops_per_second));
        let unevenness = unevenness(&run.device_seconds);
        prop_assert!(unevenness <= 1.01, "{} {:?}", unevenness, run);
        prop_assert!(run.vain_flops <= 0.01 * flops(&plan), "{:?}", run);
    }
}
