//! What becomes of a download: caches of their own, branches that move, kills, cancellations.

use std::fs;

use assay_api::{Job, JobState};
use assay_testkit::{LIMIT, eventually};
use reqwest::Method;

use super::{MODEL, Scene, WEIGHTS, of_large_files, push};
use crate::checkpoint::Damaged;

#[tokio::test]
async fn each_host_fetches_into_its_own_cache() {
    let mut scene = Scene::new().await;
    // The plan is made by one host, and computed by another.
    let slow = ["--hub", "--fault", "delay=60"];
    scene.service.add_worker_with("cpu:0", &slow);
    let id = scene.post().await;
    eventually("the plan", LIMIT, async || {
        let job = scene.service.client.job(id).await;
        job.progress.planned_tokens
    })
    .await;
    scene.service.workers[0].kill().await;
    let other = scene.service.roots.state().join("elsewhere");
    let settings = ["--hub", "--hub-cache", other.to_str().unwrap()];
    scene.service.add_worker_with("cpu:1", &settings);
    let elsewhere = scene.numbers(id).await;
    let snapshot = other
        .join("models--org--random/snapshots")
        .join(&scene.commit);
    assert!(snapshot.join(WEIGHTS).exists());
    let seen = of_large_files(scene.hub.seen());
    assert_eq!(seen.len(), 4, "weights and dataset twice: {seen:?}");
    assert_eq!(scene.local().await.0, elsewhere.0);
    scene.service.finish().await;
}

#[tokio::test]
async fn the_commit_of_the_post_is_scored_though_the_branch_moves() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let moved = scene.service.roots.models().join("moved");
    fs::create_dir(&moved).unwrap();
    for entry in fs::read_dir(scene.service.roots.models().join(MODEL)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, moved.join(path.file_name().unwrap())).unwrap();
    }
    Damaged(&moved).scale("lm_head.weight", 2.0);
    let later = push(&scene.hub, "org/random", &moved);
    assert_ne!(later, scene.commit);
    scene.add_worker();
    let first = scene.numbers(id).await;
    assert_eq!(first, scene.local().await);
    let id = scene.post().await;
    assert_ne!(
        scene.numbers(id).await,
        first,
        "the branch is where it is now"
    );
    scene.service.finish().await;
}

#[tokio::test]
async fn a_worker_killed_in_the_middle_of_the_download_costs_no_byte_twice() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let half = scene.hold_half();
    scene.add_worker();
    let shown = scene.downloads(id, half * 8 / 10).await;
    scene.service.workers[0].kill().await;
    assert_eq!(of_large_files(scene.hub.seen()).len(), 1);

    scene.add_worker();
    let resumed = scene.numbers(id).await;
    let (seen, size) = (of_large_files(scene.hub.seen()), scene.size());
    let (from, sent) = seen.iter().copied().max_by_key(|(_, sent)| *sent).unwrap();
    assert!(from >= shown, "{from} of {shown} bytes that were shown");
    assert_eq!(
        from + sent,
        size,
        "what is there is not sent again: {seen:?}"
    );
    assert_eq!(seen.len(), 2, "the rest of the weights, and the dataset");
    assert_eq!(resumed, scene.local().await);
    scene.service.finish().await;
}

#[tokio::test]
async fn a_cancelled_job_downloads_no_more() {
    let mut scene = Scene::new().await;
    let id = scene.post().await;
    let half = scene.hold_half();
    scene.add_worker();
    scene.downloads(id, half * 8 / 10).await;
    let path = format!("/jobs/{id}");
    let cancelled = scene.service.client.request(Method::DELETE, &path);
    let cancelled: Job = cancelled.send().await.unwrap().json().await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(cancelled.progress.download, None);
    // The device is free, and the file that it had begun is nobody's.
    scene.local().await;
    let again = scene.post().await;
    scene.numbers(again).await;
    let seen = of_large_files(scene.hub.seen());
    assert!(
        seen.iter().any(|(from, _)| *from >= half * 8 / 10),
        "{seen:?}"
    );
    scene.service.finish().await;
}
