//! Whether 95 % intervals hold the true difference 95 times in a hundred.

use assay_api::Unit;
use assay_testkit::Roots;
use serde_json::json;

use super::{MODEL, NOISY, pair, pair_of};
use crate::moby_dick::paragraphs;
use crate::noise::add_noisy_model;
use crate::paired::{Cluster, assert_difference, clusters, estimate};
use crate::random::Random;
use crate::service::Service;

const POPULATION: usize = 2000;
const GROUPS: usize = 10;
const SAMPLES: usize = 10_000;
const DOCUMENTS: usize = 200;
/// Of the shortest document and of the longest, so that the lengths of a sample vary, too.
const BYTES: [u64; 2] = [3, 30];

/// Pieces of the demo text of very different lengths, in groups of the size of a sample.
fn population(random: &mut Random) -> String {
    let text = paragraphs(usize::MAX, usize::MAX).join(" ");
    let end = text.len() as u64 - BYTES[1];
    let mut at = |n| usize::try_from(random.below(n)).unwrap();
    let documents = (0..POPULATION).map(|index| {
        let start = text.floor_char_boundary(at(end));
        let length = at(BYTES[1] - BYTES[0]) + usize::try_from(BYTES[0]).unwrap();
        let text = &text[start..text.ceil_char_boundary(start + length)];
        json!({"text": text, "group": (index % GROUPS).to_string()}).to_string()
    });
    documents.collect::<Vec<_>>().join("\n")
}

/// Samples of 200 documents, drawn with replacement from a population whose true difference is
/// known. The interval of a sample is that of [`estimate`], which is held against the service's for
/// groups of this size.
#[tokio::test]
async fn intervals_hold_the_true_difference() {
    let mut random = Random(1);
    let roots = Roots::new();
    add_noisy_model(&roots, MODEL, NOISY, 0.05);
    roots.add_data("population.jsonl", population(&mut random));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0-1");
    let change = json!({"datasets": [{"path": "population.jsonl", "group_by": "group"}]});
    let jobs = pair(&service, &change).await;
    let comparison = service.client.compare(&pair_of(jobs)).await;
    let found = &comparison.datasets[0];
    let rows = service.client.documents(jobs.1, "population.jsonl").await;
    let before = service.client.documents(jobs.0, "population.jsonl").await;
    let population = clusters(&before, &rows, Unit::Token);
    assert_difference(&found.difference, POPULATION, &population, "population");
    assert_eq!(found.groups.len(), GROUPS);
    for (index, group) in found.groups.iter().enumerate() {
        let members: Vec<_> = population
            .iter()
            .skip(index)
            .step_by(GROUPS)
            .copied()
            .collect();
        assert_difference(&group.difference, DOCUMENTS, &members, &group.name);
    }
    service.finish().await;

    let truth = found.difference.difference.unwrap();
    let mut draw = || population[usize::try_from(random.below(POPULATION as u64)).unwrap()];
    let held = (0..SAMPLES).filter(|_| {
        let sample: Vec<Cluster> = (0..DOCUMENTS).map(|_| draw()).collect();
        let (difference, half_width) = estimate(&sample).unwrap();
        (difference - truth).abs() <= half_width
    });
    let coverage = held.count() as f64 / SAMPLES as f64;
    println!("{coverage} of the intervals hold {truth}");
    assert!((0.93..=0.97).contains(&coverage), "{coverage}");
}
