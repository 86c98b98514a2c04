//! A database that takes TLS, as those mostly do that somebody else runs.

use std::sync::Arc;

use assay_store::Store;
use assay_testkit::{Proxy, TestDatabase};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a client sends first: its length, and the code of "may we talk TLS?".
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// TLS in front of a PostgreSQL without it. Ends when dropped.
struct Front {
    port: u16,
    /// The certificate, for clients who should trust it.
    certificate: NamedTempFile,
    accepting: JoinHandle<()>,
}

impl Front {
    async fn start(proxy: &Proxy) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = port_of(proxy);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(carry(stream, acceptor.clone(), upstream));
            }
        });
        let certificate = NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), cert.pem()).unwrap();
        Self {
            port,
            certificate,
            accepting,
        }
    }

    /// The URL of the database through this, for a client who trusts the certificate of `trusted`.
    fn url(&self, proxy: &Proxy, trusted: &Self) -> String {
        let url = proxy.url();
        let url = url.replace(
            &format!(":{}/", port_of(proxy)),
            &format!(":{}/", self.port),
        );
        let certificate = trusted.certificate.path().display();
        format!("{url}&sslmode=verify-full&sslrootcert={certificate}")
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A client who does not trust the certificate ends the connection, which is no failure here.
async fn carry(mut stream: TcpStream, acceptor: TlsAcceptor, upstream: u16) -> std::io::Result<()> {
    let mut request = [0; 8];
    stream.read_exact(&mut request).await?;
    assert_eq!(request, SSL_REQUEST, "the client did not ask for TLS");
    stream.write_all(b"S").await?;
    let mut stream = acceptor.accept(stream).await?;
    let mut database = TcpStream::connect(("127.0.0.1", upstream)).await?;
    copy_bidirectional(&mut stream, &mut database).await?;
    Ok(())
}

fn port_of(proxy: &Proxy) -> u16 {
    let (_, rest) = proxy.url().split_once("@127.0.0.1:").unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_database_is_reached_by_tls_if_its_certificate_is_trusted() {
    let database = TestDatabase::fresh().await;
    let proxy = Proxy::start(database.url()).await;
    let front = Front::start(&proxy).await;
    let other = Front::start(&proxy).await;

    let store = Store::connect(&front.url(&proxy, &front), 2).await.unwrap();
    store.migrate().await.unwrap();
    store.ready().await.unwrap();
    drop(store);

    let refused = Store::connect(&front.url(&proxy, &other), 2).await;
    let error = format!("{:?}", refused.unwrap_err());
    assert!(error.contains("InvalidCertificate"), "{error}");
    drop((front, other, proxy));
    database.finish().await;
}

#[tokio::test]
async fn a_database_without_tls_is_refused_where_tls_is_required() {
    let database = TestDatabase::fresh().await;
    let proxy = Proxy::start(database.url()).await;
    let refused = Store::connect(&format!("{}&sslmode=require", proxy.url()), 2).await;
    let error = format!("{:?}", refused.unwrap_err());
    assert!(error.contains("does not support TLS"), "{error}");
    drop(proxy);
    database.finish().await;
}
