//! Strategies against each other and against what none of them can beat.

use assay_scoring::{PlanConstants, Strategy, compare, plan};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use crate::heavy_tailed;
use crate::jobs::{CORE, COST, flops, planned, scope, windows};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No strategy beats the lower bound, and the one that jobs run by comes nearest to it.
    #[test]
    fn strategies_keep_to_the_lower_bound(lengths in heavy_tailed(), seed in any::<u64>()) {
        let devices: Vec<f64> = (0..8).map(|i| CORE * f64::from(1 + i % 2)).collect();
        let constants = PlanConstants::default();
        let scopes = [scope(&lengths, 512)];
        let plans = plan(&scopes, &COST, &constants).unwrap();
        let compared = compare(&scopes, &plans, &COST, &devices, seed);
        let plan = planned(&lengths, 512);
        prop_assert_eq!(compared.windows, windows(&plan) as u64);
        prop_assert_eq!(compared.shards, plan.shards.len() as u64);
        prop_assert_eq!(compared.scored_tokens, plan.scored_tokens);
        prop_assert!((compared.flops / flops(&plan) - 1.0).abs() < 1e-9);
        let over = |of| {
            let mut strategies = compared.strategies.iter();
            let (_, seconds) = strategies.find(|(strategy, _)| *strategy == of).unwrap();
            assert_eq!(seconds.len(), devices.len());
            seconds.iter().copied().fold(0.0, f64::max) / compared.lower_bound_seconds
        };
        let dynamic = over(Strategy::Dynamic);
        prop_assert!((1.0..1.01).contains(&dynamic), "{}", dynamic);
        for strategy in [Strategy::Random, Strategy::Even, Strategy::Length] {
            // They do not know that half of the devices are twice as fast.
            prop_assert!(over(strategy) > 1.2, "{:?} {}", strategy, over(strategy));
        }
    }
}
