//! The jobs and the devices.

use assay_scoring::{
    Comparison, PlanConstants, SimulatedDevice, SimulatedRun, SimulationTimes, Strategy, compare,
    plan, simulate,
};

use crate::jobs::{CORE, COST, Draws, GPU, flops, least, planned, scope, wikitext2};
use crate::tables::Spread;

/// What documents are drawn by.
const SEED: u64 = 1;
/// What `random` draws by, none of them `SEED`, since the generator is the same.
const RANDOM_SEEDS: std::ops::Range<u64> = 100..121;

/// A job on devices that are there all the time and equally fast.
pub(crate) struct Scenario {
    name: &'static str,
    lengths: Vec<u64>,
    window: u32,
    devices: Vec<f64>,
    plotted: bool,
}

/// What came of it.
pub(crate) struct Compared {
    pub(crate) name: &'static str,
    pub(crate) documents: usize,
    pub(crate) comparison: Comparison,
    pub(crate) plotted: bool,
}

impl Scenario {
    /// With the draw of `random` that is the median by how long it takes.
    pub(crate) fn compare(self) -> Compared {
        let scopes = [scope(&self.lengths, self.window)];
        let plans = plan(&scopes, &COST, &PlanConstants::default());
        let plans = plans.expect("documents with tokens");
        let mut draws: Vec<Comparison> = RANDOM_SEEDS
            .map(|seed| compare(&scopes, &plans, &COST, &self.devices, seed))
            .collect();
        draws.sort_by(|a, b| random_seconds(a).total_cmp(&random_seconds(b)));
        Compared {
            name: self.name,
            documents: self.lengths.len(),
            comparison: draws.swap_remove(draws.len() / 2),
            plotted: self.plotted,
        }
    }
}

fn random_seconds(comparison: &Comparison) -> f64 {
    let mut strategies = comparison.strategies.iter();
    let random = strategies.find(|(strategy, _)| *strategy == Strategy::Random);
    random.map_or(0.0, |(_, seconds)| Spread::of(seconds).max)
}

pub(crate) fn steady() -> Vec<Scenario> {
    let log_normal = |documents| Draws(SEED).log_normal(documents, 500.0, 1.2);
    let scenario = |name, lengths, window, devices| Scenario {
        name,
        lengths,
        window,
        devices,
        plotted: false,
    };
    vec![
        Scenario {
            plotted: true,
            ..scenario(
                "WikiText-2, window 512, 8 cores",
                wikitext2(),
                512,
                vec![CORE; 8],
            )
        },
        scenario(
            "WikiText-2, window 512, 8 GPUs",
            wikitext2(),
            512,
            vec![GPU; 8],
        ),
        Scenario {
            plotted: true,
            ..scenario(
                "log-normal lengths, window 512, 64 cores",
                log_normal(8000),
                512,
                vec![CORE; 64],
            )
        },
        scenario(
            "Pareto lengths, window 512, 64 cores",
            Draws(SEED).pareto(10_000, 200.0, 1.1),
            512,
            vec![CORE; 64],
        ),
        scenario(
            "log-normal lengths, window 512, 4 cores and 4 of a quarter's speed",
            log_normal(2000),
            512,
            [vec![CORE; 4], vec![CORE / 4.0; 4]].concat(),
        ),
        scenario(
            "log-normal lengths, window 512, 4 cores and a GPU",
            log_normal(2000),
            512,
            [vec![CORE; 4], vec![GPU]].concat(),
        ),
        scenario(
            "50 windows of 1,024, 2 cores",
            vec![1024; 50],
            1024,
            vec![CORE; 2],
        ),
        scenario(
            "3 documents, window 512, 8 cores",
            vec![100, 300, 1000],
            512,
            vec![CORE; 8],
        ),
        scenario(
            "1,000,000 windows of 512, 64 GPUs",
            vec![512; 1_000_000],
            512,
            vec![GPU; 64],
        ),
    ]
}

/// A job on devices that change.
pub(crate) struct Change {
    name: &'static str,
    lengths: Vec<u64>,
    devices: Vec<SimulatedDevice>,
}

/// What came of it.
pub(crate) struct Ran {
    pub(crate) name: &'static str,
    pub(crate) run: SimulatedRun,
    pub(crate) flops: f64,
    /// When the devices could have done all of it, without a rest.
    pub(crate) least: f64,
    pub(crate) shards: usize,
}

impl Change {
    pub(crate) fn run(self) -> Ran {
        let plan = planned(&self.lengths, 512);
        let times = SimulationTimes::default();
        Ran {
            name: self.name,
            run: simulate(&plan.shards, &COST, &self.devices, &times),
            flops: flops(&plan),
            least: least(&self.devices, flops(&plan)),
            shards: plan.shards.len(),
        }
    }
}

pub(crate) fn changing() -> Vec<Change> {
    let lengths = || Draws(SEED).log_normal(2000, 500.0, 1.2);
    let core = || SimulatedDevice::steady(0, CORE);
    let mut draws = Draws(SEED);
    let uneven = (0..8).map(|kind| SimulatedDevice {
        speeds: (0..200)
            .map(|step| (f64::from(step) * 20.0, CORE * (1.0 + 3.0 * draws.uniform())))
            .collect(),
        ..SimulatedDevice::steady(kind % 2, 0.0)
    });
    let uneven = uneven.collect();
    let slows = SimulatedDevice {
        speeds: vec![(0.0, CORE), (200.0, CORE / 20.0)],
        ..core()
    };
    let leaves = |at| SimulatedDevice {
        leaves: Some(at),
        ..core()
    };
    let joins = |at| SimulatedDevice {
        joins: at,
        ..core()
    };
    let with = |devices: Vec<SimulatedDevice>| {
        let others = vec![core(); 8 - devices.len()];
        [devices, others].concat()
    };
    let change = |name, devices| Change {
        name,
        lengths: lengths(),
        devices,
    };
    vec![
        change(
            "8 devices, each between 1 and 4 cores fast, another every 20 s",
            uneven,
        ),
        change(
            "8 cores, of which one has a twentieth of its speed from 200 s on",
            with(vec![slows]),
        ),
        change(
            "8 cores, of which one leaves at 200 s",
            with(vec![leaves(200.0)]),
        ),
        change(
            "8 cores, of which one leaves at 549 s, at the end",
            with(vec![leaves(549.0)]),
        ),
        change(
            "8 cores, of which two come at 100 s and 300 s, two leave at 150 s and 400 s",
            with(vec![
                joins(100.0),
                joins(300.0),
                leaves(150.0),
                leaves(400.0),
            ]),
        ),
    ]
}
