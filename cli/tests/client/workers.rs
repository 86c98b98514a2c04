//! `assay workers`.

use serde_json::json;

use crate::stand_in::{assay, text};

fn worker(name: &str, state: &str) -> serde_json::Value {
    json!({
        "id": "0192d3a4-0000-7000-8000-000000000002",
        "name": name,
        "state": state,
        "version": "0.1.0",
        "devices": [{"name": "cpu:0", "kind": "cpu/x"}, {"name": "cpu:1", "kind": "cpu/x"}],
        "started_at": "2026-01-01T00:00:00Z",
        "last_seen_at": "2026-01-01T00:00:00Z",
        "running": 3,
        "late_commits": 2,
    })
}

#[tokio::test]
async fn workers_are_listed_with_what_is_wrong() {
    let mut odd = worker("host-7/42", "out_of_service");
    odd["out_of_service"] = json!("job 1: host-8/1 and host-9/1 agree on shard 5");
    odd["last_error"] = json!({
        "code": "E1001", "detail": "the database was out of reach for 20 s",
        "at": "2026-01-01T00:00:00Z",
    });
    let page = json!({"items": [odd, worker("host-8/1", "live")], "next": null}).to_string();
    let (output, script) = assay(&["workers", "--limit=5"], &[(200, page.clone())]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(script.lock().unwrap().requests, ["GET /workers?limit=5 "]);
    let shown = text(&output.stdout);
    println!("{shown}");
    for part in [
        "out of service",
        "host-7/42 is out of service: job 1: host-8/1 and host-9/1",
        "E1001 the database was out of reach",
        "cpu:0,cpu:1",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let (output, _) = assay(&["workers", "--json"], &[(200, page.clone())]).await;
    assert_eq!(text(&output.stdout).trim(), page);
}

#[tokio::test]
async fn no_workers_are_none() {
    let page = r#"{"items": [], "next": null}"#.to_owned();
    let (output, _) = assay(&["workers"], &[(200, page)]).await;
    assert_eq!(text(&output.stdout), "no workers\n");
}
