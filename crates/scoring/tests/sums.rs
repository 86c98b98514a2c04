//! What must hold of every sum.

// Generated sizes are small.
#![allow(clippy::cast_possible_truncation)]

use assay_scoring::{ClusterLayout, ExactSum, ShardSums, document_sums, to_units};
use proptest::prelude::*;

/// Units by integer arithmetic on the bits of the double.
fn units_reference(nll: f64) -> i128 {
    let bits = nll.to_bits();
    let exponent = i64::try_from(bits >> 52 & 0x7ff).unwrap();
    let fraction = i128::from(bits & ((1 << 52) - 1));
    let mantissa = if exponent == 0 {
        fraction
    } else {
        fraction | 1 << 52
    };
    // |nll| * 2^32 = mantissa * 2^shift.
    let shift = exponent.max(1) - 1075 + 32;
    let magnitude = if shift >= 0 {
        mantissa << shift
    } else if shift < -60 {
        0
    } else {
        let divisor = 1_i128 << -shift;
        let (quotient, twice) = (mantissa / divisor, mantissa % divisor * 2);
        let up = twice > divisor || twice == divisor && quotient % 2 == 1;
        quotient + i128::from(up)
    };
    if nll.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
}

proptest! {
    #[test]
    fn units_round_half_to_even(
        nll in prop_oneof![
            -2_147_483_648.0..2_147_483_648.0_f64,
            0.0..20.0_f64,
            (0_u64..1 << 40).prop_map(|halves| halves as f64 / 2.0 / 4_294_967_296.0),
            prop::num::f64::ANY.prop_filter("in range", |x| x.abs() < 2_147_483_648.0),
        ],
    ) {
        prop_assert_eq!(i128::from(to_units(nll).unwrap()), units_reference(nll));
    }

    #[test]
    fn nats_are_correctly_rounded(units in -(1_i128 << 94)..1_i128 << 94, drop in 0_u32..94) {
        let units = units >> drop;
        let sum: ExactSum = units.to_string().parse().unwrap();
        let nats = sum.nats();
        // The distance of a double to the sum, in units of 2^-64 nat to have room for halves.
        let distance = |x: f64| ((x * 18_446_744_073_709_551_616.0) as i128 - (units << 32)).abs();
        if units.unsigned_abs() < 1 << 53 {
            prop_assert_eq!(distance(nats), 0);
        } else {
            for neighbour in [nats.next_up(), nats.next_down()] {
                let closer = distance(neighbour) > distance(nats);
                let even = distance(neighbour) == distance(nats) && nats.to_bits().is_multiple_of(2);
                prop_assert!(closer || even, "{units}: {nats} against {neighbour}");
            }
        }
    }

    #[test]
    fn sums_have_no_order(
        tokens in prop::collection::vec((0_u32..6, -1.0..1e6_f64), 1..200),
        parts in prop::collection::vec(any::<prop::sample::Index>(), 200),
        count in 1_usize..9, seed in any::<u64>(),
    ) {
        let mut whole = ShardSums::default();
        let mut split = vec![ShardSums::default(); count];
        for (&(cluster, nll), part) in tokens.iter().zip(&parts) {
            whole.add(cluster, nll).unwrap();
            part.get_mut(&mut split).add(cluster, nll).unwrap();
        }
        let from = seed as usize % count;
        split.rotate_left(from);
        let mut merged = ShardSums::default();
        for part in &split {
            merged.merge(part).unwrap();
        }
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(whole.scored(), tokens.len() as u64);

        let of_parts: ExactSum = split
            .into_iter()
            .rev()
            .flat_map(ShardSums::into_vec)
            .map(|sum| ExactSum::from(sum.units))
            .sum();
        let of_tokens: ExactSum =
            tokens.iter().map(|t| ExactSum::from(to_units(t.1).unwrap())).sum();
        prop_assert_eq!(of_parts, of_tokens);
    }

    #[test]
    fn clusters_cover_their_documents(lengths in prop::collection::vec(0_u64..300, 1..5)) {
        let layout = ClusterLayout::of(&lengths);
        let mut clusters = vec![(ExactSum::default(), 0_u64); layout.len() as usize];
        for (document, &tokens) in (0_u32..).zip(&lengths) {
            for token in 0..tokens {
                let (sum, scored) = &mut clusters[layout.cluster(document, token) as usize];
                *sum += ExactSum::from(i64::from(document) + 1);
                *scored += 1;
            }
        }
        let expected: Vec<_> = (1_i64..)
            .zip(&lengths)
            .map(|(value, &n)| (ExactSum::from(value * n.cast_signed()), n))
            .collect();
        prop_assert_eq!(document_sums(&layout, &clusters), expected);
        if lengths.iter().filter(|&&n| n > 0).count() == 1 {
            let scored: Vec<u64> = clusters.iter().map(|c| c.1).collect();
            let (least, most) = (scored.iter().min().unwrap(), scored.iter().max().unwrap());
            prop_assert!(*least >= 1 && most - least <= 1);
        }
    }
}
