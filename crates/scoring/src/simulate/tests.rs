//! Runs by hand.

use super::run::Run;
use super::{SimulatedDevice, SimulatedRun, SimulationTimes};

/// Claims take no time, so that times are round.
const TIMES: SimulationTimes = SimulationTimes {
    claim: 0.0,
    heartbeat: 3.0,
    lease: 15.0,
    poll: 1.0,
};

/// Runs shards of some micro-batches of some operations.
fn run(shards: &[(usize, f64)], devices: &[SimulatedDevice]) -> SimulatedRun {
    let shards = shards.iter().map(|&(count, flops)| vec![flops; count]);
    Run::new(shards.collect(), devices, &TIMES).finish()
}

#[track_caller]
fn close(a: &[f64], b: &[f64]) {
    let close = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(close, "{a:?} is not {b:?}");
}

#[test]
fn equal_devices_share_equally() {
    let devices = [
        SimulatedDevice::steady(0, 10.0),
        SimulatedDevice::steady(0, 10.0),
    ];
    let run = run(&[(1, 10.0); 4], &devices);
    close(&run.device_seconds, &[2.0, 2.0]);
    close(&[run.seconds, run.vain_flops], &[2.0, 0.0]);
    assert_eq!((run.claims, run.copies, run.unfinished), (4, 0, 0));
}

#[test]
fn a_claim_takes_as_much_as_the_policy_says() {
    let shards = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 9.0].map(|flops| (1, flops));
    let run = run(&shards, &[SimulatedDevice::steady(0, 10.0)]);
    // 1, by which the rate is found; then up to two seconds' work or half of what remains: 9, 8
    // and 7 (20 of 50), 6, 6 and 5 (13 of 26), 4 and 3 (4.5 of 9), 2.
    close(&run.device_seconds, &[5.1]);
    assert_eq!((run.claims, run.copies), (5, 0));
}

#[test]
fn an_idle_device_repeats_what_a_slow_one_is_at() {
    let devices = [
        SimulatedDevice::steady(1, 1.0),
        SimulatedDevice::steady(0, 100.0),
    ];
    let run = run(&[(10, 1.0), (1, 100.0)], &devices);
    // After a second the fast one is through and repeats the other in a tenth. The slow one learns
    // of it with its renewal after 3 seconds and leaves the rest.
    close(&run.device_seconds, &[0.0, 1.1]);
    close(&[run.vain_flops], &[3.0]);
    assert_eq!((run.claims, run.copies, run.unfinished), (3, 1, 0));
}

#[test]
fn a_result_that_comes_late_is_in_vain() {
    let devices = [
        SimulatedDevice::steady(1, 1.0),
        SimulatedDevice::steady(0, 100.0),
    ];
    // One micro-batch cannot be left in the middle.
    let run = run(&[(1, 10.0), (1, 100.0)], &devices);
    close(&run.device_seconds, &[0.0, 1.1]);
    close(&[run.vain_flops], &[10.0]);
}

#[test]
fn a_copy_that_is_overtaken_is_in_vain() {
    let devices = [
        SimulatedDevice {
            speeds: vec![(0.0, 10.0), (1.0, 1.0), (7.0, 28.0)],
            ..SimulatedDevice::steady(0, 0.0)
        },
        SimulatedDevice::steady(1, 10.0),
    ];
    let run = run(&[(1, 10.0), (1, 10.0), (1, 20.0)], &devices);
    // The first device claims the third shard after 1 s and should be through at 3 s. At 6 s it is
    // 3 s late, and the other one would need 2; but then it becomes fast.
    close(&run.device_seconds, &[7.5, 1.0]);
    close(&[run.vain_flops], &[20.0]);
    assert_eq!((run.claims, run.copies, run.unfinished), (4, 1, 0));
}

#[test]
fn renewals_tell_of_a_device_that_has_become_slow() {
    let devices = [
        SimulatedDevice {
            speeds: vec![(0.0, 10.0), (1.0, 2.0)],
            ..SimulatedDevice::steady(0, 0.0)
        },
        SimulatedDevice::steady(1, 10.0),
    ];
    let run = run(&[(1, 10.0), (1, 10.0), (10, 4.0)], &devices);
    // At 3 s one of ten micro-batches has taken 2 s: 18 s more, not until 5 s as by its rate.
    close(&run.device_seconds, &[1.0, 7.0]);
    // Until the renewal at 9 s.
    close(&[run.vain_flops], &[16.0]);
    assert_eq!((run.claims, run.copies, run.unfinished), (4, 1, 0));
}

#[test]
fn what_a_device_leaves_behind_goes_to_others_after_its_lease() {
    let devices = [
        SimulatedDevice {
            leaves: Some(2.5),
            ..SimulatedDevice::steady(0, 10.0)
        },
        SimulatedDevice {
            joins: 4.0,
            ..SimulatedDevice::steady(0, 10.0)
        },
    ];
    let run = run(&[(1, 10.0), (10, 10.0)], &devices);
    // A second for the small one; of the large one a micro-batch and a half. It is expected at 11
    // s and never late enough for a copy, which would take 10 s; it is queued again at 17.5 s.
    close(&run.device_seconds, &[1.0, 27.5]);
    close(&[run.vain_flops], &[10.0]);
    assert_eq!((run.claims, run.copies, run.unfinished), (3, 0, 0));
}

#[test]
fn without_devices_work_is_left() {
    let gone = SimulatedDevice {
        leaves: Some(1.5),
        ..SimulatedDevice::steady(0, 10.0)
    };
    let run_of = |device: SimulatedDevice| run(&[(1, 10.0); 2], &[device]);
    assert_eq!(run_of(gone).unfinished, 1);
    let hung = SimulatedDevice {
        speeds: vec![(0.0, 10.0), (1.5, 0.0)],
        ..SimulatedDevice::steady(0, 0.0)
    };
    assert_eq!(run_of(hung).unfinished, 1);
    assert_eq!(run(&[(1, 1.0)], &[]).unfinished, 1);
}
