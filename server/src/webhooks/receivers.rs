//! Where webhooks may be: on public addresses, and where the operator allows it.
//!
//! Whoever posts a job makes this server call a URL, so that URL must not reach what only the
//! server can reach. Addresses in URLs are checked as such; those of names when they are connected
//! to, which is what counts: a name may stand for another address then than before.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Characters of a URL.
const LONGEST_URL: usize = 2048;

/// What the registries of special addresses of IANA keep from being global (RFC 6890 and those that
/// came after it), multicast, what is reserved, and one public address of a cloud's metadata.
const NOT_PUBLIC_V4: [Ipv4Net; 17] = [
    v4([0, 0, 0, 0], 8),
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    // Metadata of most clouds among them.
    v4([169, 254, 0, 0], 16),
    v4([172, 16, 0, 0], 12),
    v4([192, 0, 0, 0], 24),
    v4([192, 0, 2, 0], 24),
    v4([192, 31, 196, 0], 24),
    v4([192, 88, 99, 0], 24),
    v4([192, 168, 0, 0], 16),
    v4([198, 18, 0, 0], 15),
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    // The metadata service of Azure.
    v4([168, 63, 129, 16], 32),
];

/// Global unicast, all else is not public: loopback, link-local, unique local, multicast, and what
/// stands for addresses of IPv4 behind a translator.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0], 3);

/// Of that what is not global, and what holds an address of IPv4: Teredo and others of 2001::/23,
/// examples, 6to4.
const NOT_PUBLIC_V6: [Ipv6Net; 4] = [
    v6([0x2001, 0], 23),
    v6([0x2001, 0xdb8], 32),
    v6([0x2002, 0], 16),
    v6([0x3fff, 0], 20),
];

const fn v4(address: [u8; 4], prefix: u8) -> Ipv4Net {
    let [a, b, c, d] = address;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(start: [u16; 2], prefix: u8) -> Ipv6Net {
    let [a, b] = start;
    Ipv6Net::new_assert(std::net::Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// What webhooks may be on although it is not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Addresses.
    Network(IpNet),
    /// A name, whatever address it stands for.
    Host(String),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        // As the host of a URL it takes the form that it is compared in.
        let url = Url::parse(&format!("http://{text}/")).ok();
        let host = url.as_ref().and_then(Url::host_str);
        match host {
            Some(host) if host.eq_ignore_ascii_case(text) => Ok(Self::Host(host.to_owned())),
            _ => Err(
                "takes a network such as 10.1.0.0/16, an address or the name of a host".to_owned(),
            ),
        }
    }
}

/// Which receivers are called. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receivers(Arc<Rules>);

#[derive(Debug, Default)]
struct Rules {
    networks: Vec<IpNet>,
    hosts: HashSet<String>,
}

impl Receivers {
    /// Those on public addresses, and what is allowed besides.
    pub(crate) fn new(allowed: &[Allowed]) -> Self {
        let mut rules = Rules::default();
        for one in allowed.iter().cloned() {
            match one {
                Allowed::Network(network) => rules.networks.push(network),
                Allowed::Host(host) => {
                    rules.hosts.insert(host);
                }
            }
        }
        Self(Arc::new(rules))
    }

    /// The URL of a webhook.
    ///
    /// # Errors
    /// What is wrong with it and what would be right, as a sentence about it.
    pub(crate) fn url(&self, text: &str) -> Result<Url, String> {
        if text.len() > LONGEST_URL {
            return Err(format!(
                "is longer than {LONGEST_URL} characters; give a shorter URL"
            ));
        }
        let url = Url::parse(text)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or("is not a URL such as https://ci.example/assay; http and https are taken")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "has a name or a password in it; leave them out, deliveries are signed instead"
                    .to_owned(),
            );
        }
        if let Some(address) = address_of(&url)
            && !self.takes(address)
        {
            return Err(format!("is on {address}: {NOT_PUBLIC}"));
        }
        Ok(url)
    }

    /// Whether an address is public, or allowed.
    fn takes(&self, address: IpAddr) -> bool {
        let networks = &self.0.networks;
        let canonical = address.to_canonical();
        let allowed = |net: &IpNet| net.contains(&address) || net.contains(&canonical);
        is_public(canonical) || networks.iter().any(allowed)
    }
}

/// Host and port of a URL that [`Receivers::url`] took: what is one receiver.
pub(crate) fn receiver(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{host}:{port}")
}

const NOT_PUBLIC: &str = "an address that is not public, which this service calls only where its \
                          operator allows it (--webhook-allow)";

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&v4)),
        IpAddr::V6(v6) => {
            PUBLIC_V6.contains(&v6) && !NOT_PUBLIC_V6.iter().any(|net| net.contains(&v6))
        }
    }
}

/// The address that a URL has for a host. The parser has written all forms of one as such.
fn address_of(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

/// A name that stands for addresses which are not called.
#[derive(Debug)]
struct Refused {
    name: String,
    address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, address } = self;
        write!(f, "{name} stands for {address}: {NOT_PUBLIC}")
    }
}

impl std::error::Error for Refused {}

/// Asked by the client for the addresses of a name that it is about to connect to.
impl Resolve for Receivers {
    fn resolve(&self, name: Name) -> Resolving {
        let receivers = self.clone();
        Box::pin(async move {
            let name = name.as_str().to_ascii_lowercase();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((&*name, 0)).await?.collect();
            if receivers.0.hosts.contains(&name) {
                return Ok(Box::new(found.into_iter()) as Addrs);
            }
            let (taken, refused): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|address| receivers.takes(address.ip()));
            match refused.first() {
                Some(first) if taken.is_empty() => Err(Refused {
                    name,
                    address: first.ip(),
                }
                .into()),
                _ => Ok(Box::new(taken.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests;
