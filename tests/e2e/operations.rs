//! What those who run the service see of it: metrics, logs as JSON.

use crate::api::{job, roots};
use crate::service::Service;

#[tokio::test]
async fn what_a_worker_did_is_in_the_metrics() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let result = service.client.run(&job()).await;
    let metrics = service.client.metrics().await;
    let [kind] = &result.device_kinds[..] else {
        panic!("{:?}", result.device_kinds)
    };
    let of_kind = [("device_kind", &**kind)];
    assert_eq!(metrics.count("assay_devices", &of_kind), 1);
    let tokens = result.datasets[0].scored_tokens;
    assert!(tokens > 0);
    assert_eq!(metrics.count("assay_tokens_total", &of_kind), tokens);
    for doing in ["computing", "claiming", "loading", "committing"] {
        let labels = [of_kind[0], ("doing", doing)];
        let seconds = metrics.value("assay_device_seconds_total", &labels);
        assert!((0.0..600.0).contains(&seconds), "{doing}: {seconds}");
        assert!(doing != "computing" || seconds > 0.0);
    }
    let lost = [("kind", "primary"), ("outcome", "lost")];
    assert_eq!(metrics.count("assay_attempts_total", &lost), 0);

    // A server that has just started counts what was before it.
    service.restart_server().await;
    let again = service.client.metrics().await;
    for name in [
        "assay_tokens_total",
        "assay_attempts_total",
        "assay_jobs_ended_total",
    ] {
        assert_eq!(again.0[name], metrics.0[name]);
    }
    let latency = "assay_claim_latency_seconds";
    assert_eq!(again.0[latency], metrics.0[latency]);
    service.finish().await;
}

#[tokio::test]
async fn each_line_of_a_log_is_an_object() {
    let as_json = vec![("ASSAY_LOG", "json".to_owned())];
    let mut service = Service::start_in(roots(), &[], as_json).await;
    service.add_worker("cpu:0");
    service.client.run(&job()).await;
    for program in service.workers.iter().chain([&service.server]) {
        let lines = program.logged_objects();
        assert!(!lines.is_empty());
        for line in &lines {
            assert!(line["timestamp"].is_string(), "{line}");
            assert!(line["level"].is_string(), "{line}");
            assert!(line["fields"]["message"].is_string(), "{line}");
        }
    }
    let posted = service.server.logged_objects().into_iter().find(|line| {
        line["fields"]["message"] == "answered"
            && line["span"]["method"] == "POST"
            && line["span"]["route"] == "/jobs"
    });
    let posted = posted.expect("the request is in the log");
    assert_eq!(posted["fields"]["status"], 201, "{posted}");
    assert!(
        posted["fields"]["latency_ms"].as_f64().unwrap() > 0.0,
        "{posted}"
    );
    assert!(posted["span"]["request_id"].is_string(), "{posted}");
    service.finish().await;
}
