//! A server that is killed while it tells the end of a job loses nothing.

use assay_api::{Delivery, DeliveryState, Page};
use assay_testkit::{LIMIT, Receiver, Reply, Roots, eventually};
use reqwest::Method;
use serde_json::json;

use crate::service::Service;

#[tokio::test]
async fn what_a_killed_server_was_sending_is_sent_by_the_next() {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    let settings = vec![
        ("ASSAY_WEBHOOK_ALLOW", "127.0.0.1".to_owned()),
        ("ASSAY_WEBHOOK_TIMEOUT_SECONDS", "2".to_owned()),
    ];
    let mut service = Service::start_in(roots, &[], settings).await;
    let receiver = Receiver::start([Reply::Never]).await;
    let job = json!({
        "model": "llama_gqa",
        "datasets": [{"documents": ["x"]}],
        "webhook": {"url": receiver.url()},
    });
    let job = service.client.submit(&job).await;
    let path = format!("/jobs/{job}");
    let cancel = service.client.request(Method::DELETE, &path).send().await;
    assert!(cancel.unwrap().status().is_success());
    // The job has ended, and the receiver has not answered.
    receiver.gets(1).await;
    service.restart_server().await;

    let requests = receiver.gets(2).await;
    assert_eq!(
        requests[0].header("webhook-id"),
        requests[1].header("webhook-id")
    );
    assert_eq!(requests[0].body, requests[1].body);
    let delivery = eventually("the delivery", LIMIT, async || {
        let page: Page<Delivery> = service.client.read(&format!("{path}/deliveries")).await;
        let delivery = page.items.into_iter().next();
        delivery.filter(|delivery| delivery.state == DeliveryState::Delivered)
    })
    .await;
    let lost = delivery.attempts[0].error.as_deref().unwrap();
    assert!(lost.contains("went away"), "{lost}");
    assert_eq!(delivery.attempts[1].status, Some(204));
    // What deliveries are signed with is in no log.
    assert!(!service.has_logged("whsec_"));
    service.finish().await;
}
