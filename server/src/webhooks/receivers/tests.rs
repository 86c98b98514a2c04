use super::*;

fn allowing(allowed: &[&str]) -> Receivers {
    let allowed: Vec<Allowed> = allowed.iter().map(|text| text.parse().unwrap()).collect();
    Receivers::new(&allowed)
}

#[test]
fn addresses_that_are_not_public_are_refused_in_every_form() {
    let receivers = Receivers::default();
    for host in [
        "127.0.0.1",
        "127.9.9.9",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "198.19.0.1",
        "203.0.113.9",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fc00::1]",
        "[ff02::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::1]",
        "[2001:0:1::1]",
        "[2001:db8::1]",
    ] {
        let refused = receivers.url(&format!("http://{host}/x")).unwrap_err();
        assert!(refused.contains("--webhook-allow"), "{host}: {refused}");
    }
    for host in [
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.167.0.1",
        "[2606:4700::1111]",
        "[::ffff:8.8.8.8]",
        "ci.example",
        "localhost",
    ] {
        assert!(
            receivers.url(&format!("https://{host}/x")).is_ok(),
            "{host}"
        );
    }
}

#[test]
fn what_is_no_receiver_is_refused() {
    let receivers = Receivers::default();
    for (url, why) in [
        ("ftp://ci.example/", "http and https"),
        ("file:///etc/passwd", "http and https"),
        ("ci.example/hook", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://user@ci.example/", "a password"),
        ("https://user:secret@ci.example/", "a password"),
    ] {
        let refused = receivers.url(url).unwrap_err();
        assert!(refused.contains(why), "{url}: {refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
    let long = format!("https://ci.example/{}", "x".repeat(LONGEST_URL));
    assert!(receivers.url(&long).unwrap_err().contains("shorter"));
}

#[test]
fn what_is_allowed_is_taken_and_nothing_beside_it() {
    let receivers = allowing(&["10.1.2.3/16", "127.0.0.1", "fd00::/8"]);
    for (host, taken) in [
        ("10.1.9.9", true),
        ("10.2.0.1", false),
        ("127.0.0.1", true),
        ("[::ffff:127.0.0.1]", true),
        ("127.0.0.2", false),
        ("[fd12::1]", true),
        ("[fe80::1]", false),
    ] {
        let url = receivers.url(&format!("http://{host}/"));
        assert_eq!(url.is_ok(), taken, "{host}: {url:?}");
    }
    for refused in ["10.1.2.3/33", "http://x", "a b", "", "x/y", "user@x"] {
        assert!(refused.parse::<Allowed>().is_err(), "{refused}");
    }
}

#[tokio::test]
async fn a_name_is_what_it_stands_for() {
    let ask = async |receivers: Receivers| {
        let found = receivers.resolve("LocalHost".parse().unwrap()).await;
        found.map(|addresses| addresses.count() > 0)
    };
    let refused = ask(Receivers::default()).await.unwrap_err().to_string();
    assert!(refused.starts_with("localhost stands for "), "{refused}");
    assert!(ask(allowing(&["localhost"])).await.unwrap());
    assert!(ask(allowing(&["127.0.0.0/8", "::1"])).await.unwrap());
    assert!(ask(allowing(&["other.example"])).await.is_err());
}

#[test]
fn a_receiver_is_a_host_and_a_port() {
    let of = |url: &str| receiver(&Url::parse(url).unwrap());
    assert_eq!(of("https://Ci.Example/a?b"), "ci.example:443");
    assert_eq!(of("http://ci.example/other"), "ci.example:80");
    assert_eq!(of("http://[2606:4700::1]:8080/"), "[2606:4700::1]:8080");
}
