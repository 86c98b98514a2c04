//! Plans that are not the convention's are refused.

// Generated sizes are small.
#![allow(clippy::cast_possible_truncation)]

use assay_scoring::{PlanConstants, PlanError, Scope, ShardPlan, Window, plan, verify_spans};
use proptest::prelude::*;

use crate::row::{COST, constants, conventions, plannable, planned, windows};

proptest! {
    #[test]
    fn a_plan_with_a_fault_is_refused(
        row in plannable(), constants in constants(),
        shard in any::<prop::sample::Index>(), batch in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(), by in prop_oneof![Just(-1_i64), Just(1_i64)],
    ) {
        let shards = planned(std::slice::from_ref(&row), &constants).unwrap().remove(0).shards;
        let fault = |edit: &dyn Fn(&mut Vec<Window>, usize)| {
            let mut shards: Vec<ShardPlan> = shards.clone();
            let shard = shard.get_mut(&mut shards);
            let windows = &mut batch.get_mut(&mut shard.micro_batches).0;
            let place = place.index(windows.len());
            edit(windows, place);
            // The count is made to agree, so that only the spans can give the fault away.
            shard.scored_tokens = shard
                .windows()
                .filter(|w| w.from < w.to && (w.document as usize) < row.lengths.len())
                .flat_map(|w| (w.from..w.to).map(|token| (w.document, token)))
                .filter(|&(document, token)| row.may_count(document, token))
                .count() as u64;
            verify_spans(&row.scope(), &shards)
        };
        let dropped = fault(&|windows, i| { windows.remove(i); });
        prop_assert!(matches!(dropped, Err(PlanError::NotCounted { .. })), "{dropped:?}");
        let twice = fault(&|windows, i| windows.push(windows[i]));
        prop_assert!(matches!(twice, Err(PlanError::CountedTwice { .. })), "{twice:?}");
        let shifted = fault(&|windows, i| {
            let w = &mut windows[i];
            w.start += by;
            w.from = w.from.wrapping_add_signed(by);
            w.to = w.to.wrapping_add_signed(by);
        });
        prop_assert!(shifted.is_err(), "{shifted:?}");
        let cut = fault(&|windows, i| windows[i].to -= 1);
        prop_assert!(cut.is_err(), "{cut:?}");
        let grown = fault(&|windows, i| windows[i].to += 1);
        prop_assert!(grown.is_err(), "{grown:?}");
        let late = fault(&|windows, i| windows[i].from += 1);
        prop_assert!(late.is_err(), "{late:?}");
        let early = fault(&|windows, i| windows[i].from = windows[i].from.wrapping_sub(1));
        prop_assert!(early.is_err(), "{early:?}");
        // The same targets from another context.
        let context = fault(&|windows, i| {
            windows[i].start += by;
            windows[i].len = windows[i].len.wrapping_add_signed(-by as i32);
        });
        prop_assert!(context.is_err(), "{context:?}");
        let longer = fault(&|windows, i| windows[i].len += 1);
        prop_assert!(longer.is_err(), "{longer:?}");
        let elsewhere = fault(&|windows, i| windows[i].document = row.lengths.len() as u32);
        prop_assert!(matches!(elsewhere, Err(PlanError::UnknownDocument { .. })), "{elsewhere:?}");

        let mut claimed = shards.clone();
        shard.get_mut(&mut claimed).scored_tokens += 1;
        let result = verify_spans(&row.scope(), &claimed);
        prop_assert!(matches!(result, Err(PlanError::CountDiffers { .. })), "{result:?}");
    }

    /// Windows of one convention are not taken for those of another, even if they count the same.
    #[test]
    fn another_convention_is_refused(row in plannable(), other in conventions()) {
        let shards = planned(std::slice::from_ref(&row), &PlanConstants::default())
            .unwrap()
            .remove(0)
            .shards;
        let all = |scope: Scope<'_>| {
            let plans = plan(&[scope], &COST, &PlanConstants::default());
            plans.map(|plans| {
                let mut all: Vec<Window> = windows(&plans[0]).copied().collect();
                all.sort_unstable_by_key(|w| (w.document, w.from));
                all
            })
        };
        let other = Scope { convention: other, ..row.scope() };
        prop_assume!(!(other.convention.is_joined() && other.counted.is_some()));
        let accepted = verify_spans(&other, &shards).is_ok();
        prop_assert_eq!(accepted, all(other).ok() == all(row.scope()).ok());
    }
}
