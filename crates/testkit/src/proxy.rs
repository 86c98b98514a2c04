//! A link to a PostgreSQL that can fail.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const BUFFER: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Open,
    Refused,
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct State {
    link: Link,
    /// Times it was refused: a connection from before is closed, however short that was.
    cuts: u64,
}

/// Where the database is.
#[derive(Clone, Debug)]
enum Upstream {
    Unix(PathBuf),
    Tcp(String, u16),
}

/// A proxy between a program and its PostgreSQL, on a TCP port that the kernel picked. It runs on
/// the runtime of the test and ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    state: Arc<watch::Sender<State>>,
    trap: Arc<Trap>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts an open link to the database of `url`.
    ///
    /// # Panics
    /// When `url` is malformed or there is no port.
    pub async fn start(url: &str) -> Self {
        let options: PgConnectOptions = url.parse().expect("a URL as sqlx takes it");
        let port = options.get_port();
        let upstream = match (options.get_socket(), options.get_host()) {
            (Some(directory), _) => Upstream::Unix(directory.join(format!(".s.PGSQL.{port}"))),
            (None, directory) if directory.starts_with('/') => {
                Upstream::Unix(PathBuf::from(directory).join(format!(".s.PGSQL.{port}")))
            }
            (None, host) => Upstream::Tcp(host.to_owned(), port),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("the kernel has a port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");

        // User, password and database are those of `url`; host and port are this proxy's.
        let mut near = options.to_url_lossy();
        let kept: Vec<(String, String)> = near
            .query_pairs()
            .filter(|(key, _)| !matches!(&**key, "host" | "hostaddr" | "port"))
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        near.query_pairs_mut().clear().extend_pairs(kept);
        let placed = near.set_host(Some("127.0.0.1")).is_ok();
        assert!(
            placed && near.set_port(Some(address.port())).is_ok(),
            "{near}"
        );

        let (state, _) = watch::channel(State {
            link: Link::Open,
            cuts: 0,
        });
        let (state, trap) = (Arc::new(state), Arc::new(Trap::default()));
        let accepting = tokio::spawn(accept(
            listener,
            upstream,
            Arc::clone(&state),
            Arc::clone(&trap),
        ));
        Self {
            url: near.to_string(),
            state,
            trap,
            accepting,
        }
    }

    /// The URL of the database through this link.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes all connections, and new ones at once.
    pub fn refuse(&self) {
        set(&self.state, Link::Refused);
    }

    /// From now on no byte arrives, and neither side is told: as when a cable is pulled. What is
    /// sent arrives once the link is healed, as TCP sees to it.
    pub fn silence(&self) {
        set(&self.state, Link::Silent);
    }

    /// Falls silent in the moment in which the program has sent `text`.
    pub fn silence_after(&self, text: &str) {
        self.trap.set(text);
    }

    /// Carries bytes again.
    pub fn heal(&self) {
        set(&self.state, Link::Open);
    }

    /// Whether it is silent.
    pub fn is_silent(&self) -> bool {
        self.state.borrow().link == Link::Silent
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        // The connections' tasks end with this.
        self.refuse();
    }
}

fn set(state: &watch::Sender<State>, link: Link) {
    state.send_modify(|state| {
        state.link = link;
        state.cuts += u64::from(link == Link::Refused);
    });
}

/// A text that makes the link silent.
#[derive(Debug, Default)]
struct Trap(Mutex<Option<Vec<u8>>>);

impl Trap {
    fn set(&self, text: &str) {
        let mut trap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *trap = Some(text.as_bytes().to_vec());
    }

    /// Whether it is sprung by these bytes; it is once.
    fn springs(&self, sent: &[u8]) -> bool {
        let mut trap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = trap.as_deref();
        let sprung = text.is_some_and(|text| sent.windows(text.len()).any(|part| part == text));
        if sprung {
            *trap = None;
        }
        sprung
    }
}

async fn accept(
    listener: TcpListener,
    upstream: Upstream,
    state: Arc<watch::Sender<State>>,
    trap: Arc<Trap>,
) {
    while let Ok((near, _)) = listener.accept().await {
        let link = Connection {
            cuts: state.borrow().cuts,
            state: Arc::clone(&state),
            trap: Arc::clone(&trap),
        };
        tokio::spawn(link.serve(near, upstream.clone()));
    }
}

/// One connection through the link.
struct Connection {
    /// Of the link when this connection was made.
    cuts: u64,
    state: Arc<watch::Sender<State>>,
    trap: Arc<Trap>,
}

impl Connection {
    /// Carries bytes until either side closes, or the link is cut.
    async fn serve(self, near: TcpStream, upstream: Upstream) {
        let mut state = self.state.subscribe();
        let cut = state.wait_for(|state| state.link == Link::Refused || state.cuts != self.cuts);
        tokio::select! {
            // A failure of either side closes both, which tells the other.
            _ = self.carry(near, upstream) => {}
            _ = cut => {}
        }
    }

    async fn carry(&self, near: TcpStream, upstream: Upstream) -> io::Result<()> {
        self.flowing().await;
        match upstream {
            Upstream::Unix(path) => self.both_ways(near, UnixStream::connect(path).await?).await,
            Upstream::Tcp(host, port) => {
                self.both_ways(near, TcpStream::connect((host, port)).await?)
                    .await
            }
        }
    }

    async fn both_ways(&self, near: TcpStream, far: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        near.set_nodelay(true)?;
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = tokio::io::split(far);
        let (sent, answered) = tokio::join!(
            self.pump(near_read, far_write, Some(&self.trap)),
            self.pump(far_read, near_write, None),
        );
        sent.and(answered)
    }

    async fn pump(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        trap: Option<&Trap>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from.read(&mut buffer).await;
            // What is read while the link is silent waits here.
            self.flowing().await;
            let read = match read {
                Ok(0) | Err(_) => return to.shutdown().await,
                Ok(read) => &buffer[..read],
            };
            to.write_all(read).await?;
            if trap.is_some_and(|trap| trap.springs(read)) {
                set(&self.state, Link::Silent);
            }
        }
    }

    /// Waits while the link is silent, and for ever once it was cut: what waited is not delivered,
    /// and [`Connection::serve`] ends this.
    async fn flowing(&self) {
        let mut state = self.state.subscribe();
        let flows = |state: &State| state.link == Link::Open && state.cuts == self.cuts;
        // Whoever holds the sender waits here, so it is not gone.
        let _ = state.wait_for(flows).await;
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, PgConnection};
    use tokio::time::timeout;

    use super::*;
    use crate::{LIMIT, TestDatabase, eventually};

    async fn answer(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
        let question = sqlx::query_scalar("select 7");
        question.fetch_one(connection).await
    }

    #[tokio::test]
    async fn a_link_carries_is_cut_and_carries_again() {
        let database = TestDatabase::fresh().await;
        let proxy = Proxy::start(database.url()).await;
        let connect = || PgConnection::connect(proxy.url());
        let mut connection = connect().await.unwrap();
        assert_eq!(answer(&mut connection).await.unwrap(), 7);

        // A cut ends what was there, even if it is over before anybody looks.
        proxy.refuse();
        proxy.heal();
        let ended = answer(&mut connection);
        assert!(timeout(LIMIT, ended).await.unwrap().is_err());

        proxy.refuse();
        assert!(timeout(LIMIT, connect()).await.unwrap().is_err());
        proxy.heal();
        assert_eq!(answer(&mut connect().await.unwrap()).await.unwrap(), 7);
        drop(proxy);
        database.finish().await;
    }

    #[tokio::test]
    async fn a_silent_link_delivers_later() {
        let database = TestDatabase::fresh().await;
        let proxy = Proxy::start(database.url()).await;
        let mut connection = PgConnection::connect(proxy.url()).await.unwrap();
        proxy.silence();
        {
            let waiting = answer(&mut connection);
            tokio::pin!(waiting);
            let short = std::time::Duration::from_millis(100);
            assert!(timeout(short, &mut waiting).await.is_err(), "no answer");
            proxy.heal();
            assert_eq!(timeout(LIMIT, waiting).await.unwrap().unwrap(), 7);
        }
        // What springs the trap arrives, its answer does not.
        proxy.silence_after("create table sprung");
        let mut direct = database.connect().await;
        {
            let created = sqlx::raw_sql("create table sprung ()").execute(&mut connection);
            tokio::pin!(created);
            let arrived = eventually("the table", LIMIT, async || {
                let there = sqlx::query_scalar("select to_regclass('sprung') is not null");
                let there: bool = there.fetch_one(&mut direct).await.unwrap();
                there.then_some(())
            });
            tokio::select! {
                () = arrived => {}
                answer = &mut created => panic!("{answer:?}"),
            }
            assert!(proxy.is_silent());
            drop(proxy);
            assert!(timeout(LIMIT, created).await.unwrap().is_err(), "closed");
        }
        drop((connection, direct));
        database.finish().await;
    }
}
