//! One service: a database, a server and workers, each a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use assay_api::WorkerRow;
use assay_testkit::{
    LIMIT, Program, Proxy, Roots, Signal, TestCluster, TestDatabase, eventually, executable,
    is_running,
};
use sqlx::{Connection, PgConnection};
use tokio::sync::{Mutex, MutexGuard};

use crate::client::Client;

/// Seconds between renewals, and seconds that a lease holds: short, so that what is lost is missed
/// soon, and long enough for a busy machine.
const HEARTBEAT: &str = "0.5";
const LEASE: &str = "3";

/// Services compute on the cores they are told, so they take turns: under `cargo test`, which runs
/// the tests of a binary side by side, two would compute on the same core.
static TURN: Mutex<()> = Mutex::const_new(());

enum Database {
    Fresh(TestDatabase),
    Own(TestCluster),
}

impl Database {
    fn url(&self) -> String {
        match self {
            Self::Fresh(database) => database.url().to_owned(),
            Self::Own(own) => own.cluster.url(),
        }
    }
}

/// Where the processes log to. Shown when the test fails.
struct Logs(PathBuf);

impl Logs {
    fn read(&self) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        entries
            .map(|entry| (entry.path(), read(&entry.path())))
            .collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if thread::panicking() {
            for (path, log) in self.read() {
                eprintln!("--- {}\n{log}", path.display());
            }
        }
    }
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).expect("a log can be read")).into_owned()
}

/// A program of the service.
pub(crate) struct Process {
    program: Program,
    log: PathBuf,
}

impl Process {
    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Ends it by SIGKILL.
    pub(crate) async fn kill(&self) {
        self.program.kill().await;
    }

    /// Whether a text is in its log.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        read(&self.log).contains(text)
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&self) -> bool {
        is_running(self.pid())
    }

    /// The lines of its log, which is one of JSON.
    pub(crate) fn logged_objects(&self) -> Vec<serde_json::Value> {
        let log = read(&self.log);
        let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        log.lines().map(object).collect()
    }

    /// Waits for a text in its log.
    pub(crate) async fn logs(&self, text: &str) {
        let what = format!("{text:?} in the log");
        eventually(&what, LIMIT, async || self.has_logged(text).then_some(())).await;
    }

    /// Waits for the end that a SIGTERM brings.
    pub(crate) async fn ends_in_order(&self) {
        let status = self.program.ended_within(LIMIT).await;
        assert_eq!(status.code(), Some(0), "{}", self.log.display());
    }

    /// Ends it by SIGTERM.
    pub(crate) async fn stop(&self) {
        self.signal(Signal::TERM);
        self.ends_in_order().await;
    }
}

/// Variables of the server and the workers.
type Environment = Vec<(&'static str, String)>;

/// A running service. End it with [`Service::finish`]; dropping it kills it.
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) server: Process,
    /// In the order of their start, ended ones too.
    pub(crate) workers: Vec<Process>,
    address: String,
    database: Database,
    environment: Environment,
    logs: Logs,
    pub(crate) roots: Roots,
    _turn: MutexGuard<'static, ()>,
}

impl Service {
    /// A server on a fresh database, without a worker.
    pub(crate) async fn start(roots: Roots) -> Self {
        Self::start_with(roots, &[]).await
    }

    /// The same with settings of the server.
    pub(crate) async fn start_with(roots: Roots, settings: &[&str]) -> Self {
        Self::start_in(roots, settings, Vec::new()).await
    }

    /// The same with variables in the environment, which workers have too.
    pub(crate) async fn start_in(
        roots: Roots,
        settings: &[&str],
        environment: Environment,
    ) -> Self {
        let turn = TURN.lock().await;
        let database = Database::Fresh(TestDatabase::fresh().await);
        Self::on(database, roots, turn, settings, environment).await
    }

    /// A server on a PostgreSQL of its own, without a worker.
    pub(crate) async fn start_on_own_postgres(roots: Roots) -> Self {
        let turn = TURN.lock().await;
        let own = TestCluster::start()
            .await
            .expect("a private PostgreSQL should start");
        Self::on(Database::Own(own), roots, turn, &[], Vec::new()).await
    }

    async fn on(
        database: Database,
        roots: Roots,
        turn: MutexGuard<'static, ()>,
        settings: &[&str],
        environment: Environment,
    ) -> Self {
        let logs = Logs(roots.state().join("logs"));
        fs::create_dir(&logs.0).expect("the state directory can be written");
        let file = roots.state().join("address");
        let url = database.url();
        let server = spawn("assay-server", "server", &url, &roots, |command| {
            command.args(["serve", "--listen", "127.0.0.1:0", "--address-file"]);
            command.arg(&file).args(settings);
            command.envs(environment.clone());
        });
        let address = eventually("the server's address", LIMIT, async || {
            fs::read_to_string(&file).ok()
        })
        .await
        .trim()
        .to_owned();
        let service = Self {
            client: Client::new(&address),
            server,
            workers: Vec::new(),
            address,
            database,
            environment,
            logs,
            roots,
            _turn: turn,
        };
        service.client.ready().await;
        service
    }

    /// Host and port of the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Kills the server and starts another one on the same port.
    pub(crate) async fn restart_server(&mut self) {
        self.server.kill().await;
        let listen = ["serve", "--listen", &self.address];
        self.server = spawn(
            "assay-server",
            "server again",
            &self.database.url(),
            &self.roots,
            |command| {
                command.args(listen).envs(self.environment.clone());
            },
        );
        self.client.ready().await;
    }

    /// Starts a worker with these devices.
    pub(crate) fn add_worker(&mut self, devices: &str) {
        self.add_worker_with(devices, &[]);
    }

    /// The same with further settings.
    pub(crate) fn add_worker_with(&mut self, devices: &str, settings: &[&str]) {
        self.add_worker_at(&self.database.url(), devices, settings);
    }

    /// Starts a worker with its own way to the database, which can be cut.
    pub(crate) async fn add_worker_behind_proxy(&mut self, devices: &str) -> Proxy {
        let proxy = Proxy::start(&self.database.url()).await;
        self.add_worker_at(proxy.url(), devices, &[]);
        proxy
    }

    fn add_worker_at(&mut self, url: &str, devices: &str, settings: &[&str]) {
        let name = format!("worker {}", self.workers.len());
        let worker = spawn("assay-worker", &name, url, &self.roots, |command| {
            command.args(["run", "--devices", devices, "--heartbeat", HEARTBEAT]);
            command.args(["--lease", LEASE]).args(settings);
            command.envs(self.environment.clone());
        });
        self.workers.push(worker);
    }

    /// What the service says of a worker, by the last start of its process, once it has registered.
    pub(crate) async fn row_of(&self, worker: usize) -> WorkerRow {
        self.row_becomes(worker, "to be registered", |_| true).await
    }

    /// Waits until `probe` says yes of what the service says of a worker.
    pub(crate) async fn row_becomes(
        &self,
        worker: usize,
        what: &str,
        probe: impl Fn(&WorkerRow) -> bool,
    ) -> WorkerRow {
        let name = format!("-{}", self.workers[worker].pid());
        eventually(&format!("worker {worker} {what}"), LIMIT, async || {
            let rows = self.client.workers().await.into_iter();
            rows.filter(|row| row.name.ends_with(&name))
                .max_by_key(|row| row.started_at)
                .filter(&probe)
        })
        .await
    }

    /// The PostgreSQL of [`Service::start_on_own_postgres`].
    pub(crate) fn postgres(&mut self) -> &mut TestCluster {
        match &mut self.database {
            Database::Own(own) => own,
            Database::Fresh(_) => panic!("other tests use this PostgreSQL too"),
        }
    }

    /// Whether a text is in the log of any program.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.logs.read().iter().any(|(_, log)| log.contains(text))
    }

    /// The database, for programs that the test starts itself.
    pub(crate) fn database_url(&self) -> String {
        self.database.url()
    }

    /// Where the server is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A connection to the ledger, to look behind the service's back.
    pub(crate) async fn ledger(&self) -> PgConnection {
        PgConnection::connect(&self.database.url())
            .await
            .expect("the database should take connections")
    }

    /// Stops everything in order and checks that nothing is left: no process, no session of the
    /// database, no panic in a log.
    pub(crate) async fn finish(self) {
        for worker in &self.workers {
            if worker.is_running() {
                worker.stop().await;
            }
        }
        self.server.stop().await;
        for process in self.workers.iter().chain([&self.server]) {
            assert!(!process.is_running(), "{}", process.log.display());
        }
        for (path, log) in self.logs.read() {
            assert!(!log.contains("panicked"), "{}", path.display());
        }
        if let Database::Fresh(database) = self.database {
            database.finish().await;
        }
    }
}

/// A program without the settings that the test's own environment may hold.
pub(crate) fn program_of_assay(name: &str) -> Command {
    let mut command = Command::new(executable(name));
    for (key, _) in std::env::vars_os() {
        let key_text = key.to_string_lossy();
        if key_text.starts_with("ASSAY_") || key_text.starts_with("HF_") {
            command.env_remove(key);
        }
    }
    command.env_remove("DATABASE_URL");
    command
}

/// Starts a program on a database and the roots.
fn spawn(
    program: &str,
    name: &str,
    database_url: &str,
    roots: &Roots,
    configure: impl FnOnce(&mut Command),
) -> Process {
    let log = roots.state().join("logs").join(name);
    let file = File::create(&log).expect("the state directory can be written");
    let mut command = program_of_assay(program);
    configure(&mut command);
    command
        .arg("--model-root")
        .arg(roots.models())
        .arg("--data-root")
        .arg(roots.data())
        .arg("--state-dir")
        .arg(roots.state())
        .env("DATABASE_URL", database_url)
        .env("NO_COLOR", "1")
        .stderr(file);
    Process {
        program: Program::start(command),
        log,
    }
}
