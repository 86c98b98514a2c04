//! Rows: each dataset under each method, its documents, groups and warnings.

use assay_api::{
    Convention as Named, DatasetRef, JobRequest, JobState, MethodRequest, OneOrMany, WorkerId,
};
use assay_scoring::Convention;
use assay_store::{Claim, NewPlan, Work};
use serde_json::json;

use crate::support::{Ledger, compute, compute_by, new_plan, plan_of, request};

const A: &[u64] = &[20, 0, 9, 1, 33, 5, 8];
const ROLLING: Convention = Convention::Rolling { window: 8 };
const STRIDED: Convention = Convention::Strided {
    window: 8,
    stride: 4,
};

/// Two datasets under two methods.
fn two_by_two() -> JobRequest {
    let method = |convention, stride| MethodRequest {
        convention,
        stride,
        ..MethodRequest::default()
    };
    JobRequest {
        datasets: vec![
            DatasetRef {
                name: Some("inline".to_owned()),
                documents: Some(vec![json!("one"), json!({"text": "two"})]),
                ..DatasetRef::default()
            },
            DatasetRef::at("b.jsonl"),
        ],
        method: OneOrMany::Many(vec![
            method(Named::Rolling, None),
            method(Named::Strided, Some(4)),
        ]),
        ..request(&[])
    }
}

/// The owner of a token of a joined text.
fn owner(lengths: &[u64], token: u64) -> u32 {
    let mut end = 0;
    let documents = lengths.iter().take_while(|tokens| {
        end += **tokens;
        end <= token
    });
    u32::try_from(documents.count()).unwrap()
}

/// Claims the planning of [`two_by_two`], looks at it and commits it.
async fn plan_two_by_two(ledger: &Ledger, worker: WorkerId) {
    let Some(Claim {
        fence,
        work: Work::Plan(claim),
        ..
    }) = ledger.claim(worker).await
    else {
        panic!("nothing to plan")
    };
    let rows: Vec<_> = claim
        .rows
        .iter()
        .map(|(dataset, method)| (dataset.name(), method.convention, method.stride))
        .collect();
    assert_eq!(
        rows,
        [
            ("inline", Named::Rolling, None),
            ("inline", Named::Strided, Some(4)),
            ("b.jsonl", Named::Rolling, None),
            ("b.jsonl", Named::Strided, Some(4)),
        ]
    );
    assert!(!claim.token_output);
    let inline = &two_by_two().datasets[0];
    assert_eq!(&claim.rows[1].0, inline, "with its documents");

    let mut plan = plan_of(&[(A, ROLLING), (A, STRIDED), (&[30], ROLLING), (A, STRIDED)]);
    plan.facts.warnings.push("about all".to_owned());
    plan.datasets[1].warnings.push("about one".to_owned());
    assert!(
        ledger
            .store
            .commit_plan(worker, fence, &plan)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn each_dataset_is_a_row_under_each_method() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let request = two_by_two();
    let job = ledger.job_of(&request).await;
    plan_two_by_two(&ledger, worker).await;
    let context = ledger.store.run_context(job).await.unwrap().unwrap();
    let prefixes: Vec<_> = context.datasets.iter().map(|row| row.prefix).collect();
    assert_eq!(prefixes, [Some(0), None, Some(0), None]);
    assert_eq!(context.datasets[0].source, request.datasets[0]);
    assert_eq!(context.datasets[3].method.convention, Named::Strided);
    while let Some(claim) = ledger.claim(worker).await {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let outcome = compute_by(&shard, |window, token| match shard.dataset {
            0 => window.document,
            // One document: its 30 tokens are the clusters.
            2 => u32::try_from(token).unwrap(),
            _ => owner(A, token),
        });
        ledger.commit(worker, claim.fence, &outcome).await;
    }

    let state = ledger.state(job).await;
    assert_eq!(state.state, JobState::Succeeded);
    let named: Vec<_> = state
        .progress
        .datasets
        .iter()
        .map(|row| (&*row.name, row.method.convention, row.scored_tokens))
        .collect();
    // Under `strided` without a BOS, the first token of the text is not predicted.
    assert_eq!(
        named,
        [
            ("inline", Named::Rolling, 76),
            ("inline", Named::Strided, 75),
            ("b.jsonl", Named::Rolling, 30),
            ("b.jsonl", Named::Strided, 75),
        ]
    );
    assert_eq!(state.datasets.len(), 2);
    assert_eq!(state.datasets[0].documents, None, "answers leave them out");
    assert_eq!(state.datasets[0].name(), "inline");
    assert_eq!(state.method.as_slice().len(), 2);

    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(matches!(&result.method, OneOrMany::Many(methods) if methods.len() == 2));
    assert_eq!(result.datasets[1].method.stride, Some(4));
    let text: Vec<bool> = result
        .datasets
        .iter()
        .map(|d| d.bits_per_byte.is_some())
        .collect();
    assert_eq!(text, [true, false, true, false]);
    assert_eq!(result.warnings[0], "about all");
    assert!(
        result
            .warnings
            .contains(&"inline, method 1 (strided): about one".to_owned())
    );
    for (dataset, method, row) in [
        ("inline", 0, Some(0)),
        ("inline", 1, Some(1)),
        ("b.jsonl", 1, Some(3)),
        ("b.jsonl", 2, None),
        ("b.jsonl", u32::MAX, None),
        ("c", 0, None),
    ] {
        assert_eq!(ledger.store.row(job, dataset, method).await.unwrap(), row);
    }
    let shards = ledger.store.shards(job, 0, 1000).await.unwrap();
    assert!(
        shards
            .iter()
            .any(|s| s.dataset == "b.jsonl" && s.method.convention == Named::Strided)
    );
}

/// A plan whose documents are in two groups by turns, and one that nobody is in.
fn grouped() -> NewPlan {
    let mut plan = new_plan(&[A]);
    let names = ["odd", "even", "none\0"].map(str::to_owned);
    let groups = (0..7).map(|document| u32::from(document % 2 == 0));
    plan.datasets[0].groups = Some((names.into(), groups.collect()));
    plan.datasets[0].warnings.push("mind the gap".to_owned());
    plan
}

#[tokio::test]
async fn groups_have_numbers_and_documents_their_group() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(ledger.job(&["a"]).await);
        ledger.commit_plan(worker, &grouped()).await;
        ledger.run_all(worker).await;
    }
    let mut results = Vec::new();
    for job in jobs {
        let documents = ledger.store.documents(job, 0, 0, 100).await.unwrap();
        let groups: Vec<_> = documents
            .iter()
            .map(|d| d.group.as_deref().unwrap())
            .collect();
        assert_eq!(groups[..3], ["even", "odd", "even"]);
        let result = ledger.store.result(job).await.unwrap().unwrap();
        let groups = &result.datasets[0].groups;
        let named: Vec<_> = groups.iter().map(|g| (&*g.name, g.documents)).collect();
        assert_eq!(named, [("even", 4), ("none\\0", 0), ("odd", 3)]);
        for group in groups {
            let own = documents
                .iter()
                .filter(|d| d.group.as_ref() == Some(&group.name));
            let sum: i64 = own.map(|d| d.nll_exact.parse::<i64>().unwrap()).sum();
            assert_eq!(group.nll_exact, sum.to_string());
        }
        assert!(result.warnings.contains(&"a: mind the gap".to_owned()));
        results.push(result);
    }
    assert!(results[1].datasets[0].reused_from.is_some());
    assert_eq!(results[0].datasets[0].groups, results[1].datasets[0].groups);
    assert_eq!(results[0].warnings, results[1].warnings);
}

#[tokio::test]
async fn the_worst_documents_come_first() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    // The made-up numbers grow with the document; the last ones are given equal means.
    let lengths: Vec<u64> = (0..5000).map(|document| document % 4).collect();
    let job = ledger.planned(worker, &lengths).await;
    while let Some(claim) = ledger.claim(worker).await {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let mut outcome = compute(&shard);
        for sum in &mut outcome.sums {
            if sum.cluster >= 4990 {
                // 3 has no representation that would make thirds equal by chance.
                sum.units = i64::try_from(sum.scored).unwrap() << 46;
            }
        }
        ledger.commit(worker, claim.fence, &outcome).await;
    }
    let worst = ledger.store.worst(job, 0, 12).await.unwrap();
    let indices: Vec<u64> = worst.iter().map(|d| d.index).collect();
    let tied = (4990..5000).filter(|document| document % 4 != 0);
    let expected: Vec<u64> = tied
        .chain((0..4990).rev().filter(|d| d % 4 != 0))
        .take(12)
        .collect();
    assert_eq!(indices, expected);
    for document in worst {
        let same = ledger.store.documents(job, 0, document.index, 1).await;
        assert_eq!(same.unwrap(), [document]);
    }
    assert!(ledger.store.worst(job, 1, 5).await.unwrap().is_empty());
}
