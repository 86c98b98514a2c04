//! The name that a service without keys is asked under.
//!
//! A page of somebody else's may have the browser on this machine resolve the page's own name to a
//! loopback address, and then read what the service answers there. It cannot have the browser send
//! another name.

use std::net::IpAddr;

use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use super::forbidden;
use crate::error::ApiError;

/// Refuses a request that was not sent to a loopback name or address.
pub(super) fn require_loopback(request: &Parts) -> Result<(), ApiError> {
    // HTTP/2 has it in the URI.
    let named = request.uri.authority().map(Authority::as_str);
    let header = request.headers.get(HOST);
    let name = named.or_else(|| header.and_then(|name| name.to_str().ok()));
    let name = name.unwrap_or_default();
    if is_loopback(name) {
        return Ok(());
    }
    Err(forbidden(format!(
        "the request is for the host {name:?}; without keys this service answers requests for \
         localhost, 127.0.0.1 and [::1] alone. For others make a key: `assay-server keys create \
         --scope admin --name NAME`"
    )))
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let name = host.to_ascii_lowercase();
    address.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        for name in [
            "localhost",
            "LOCALHOST:8080",
            "assay.localhost:8080",
            "127.0.0.1",
            "127.8.9.1:80",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(is_loopback(name), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil-localhost",
            "localhost:x",
            "127.0.0.1.evil.example",
            "0.0.0.0:8080",
            "10.0.0.1",
            "[::]:80",
            "2130706433",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
