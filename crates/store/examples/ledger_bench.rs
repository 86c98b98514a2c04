//! How long claims and commits take while many workers compute: simulated workers, which wait
//! instead of computing, on a real ledger.
//!
//! `ledger_bench RESULT`, with `DATABASE_URL` naming a server whose processes are on this host;
//! writes RESULT as Markdown and fails if the claims are slower than they may be.
//! `scripts/bench-ledger.sh` runs it.

#[allow(dead_code)] // what the tests need besides
#[path = "../tests/ledger/support.rs"]
mod support;

use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use assay_api::{AttemptOutcome, JobId, JobState, WorkerId};
use assay_scoring::{Convention, PlanConstants};
use assay_store::{Claimant, DeviceRate, NewPlan, ShardClaim, ShardOutcome, Store, Work};
use sqlx::{PgConnection, Row};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use support::{LEASE, Ledger, RATE_KEY, WINDOW, claimant, compute, plan_by, request};

const WORKERS: usize = 64;
const SHARDS: u64 = 10_000;
/// Windows of a shard; in reality there are some dozens.
const WINDOWS: u64 = 16;
/// Seconds that a shard takes.
const SECONDS: f64 = 0.5;
/// Operations of a shard: an input token costs one.
const FLOPS: f64 = (WINDOWS * WINDOW as u64) as f64;
/// Milliseconds that 99 of 100 claims may take.
const LIMIT: f64 = 50.0;

const HEARTBEAT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_secs(1);

/// Milliseconds of each call.
#[derive(Default)]
struct Times {
    claims: Vec<f64>,
    empty_claims: Vec<f64>,
    commits: Vec<f64>,
    renewals: Vec<f64>,
    claimed: usize,
    committed: usize,
}

struct Worker {
    store: Store,
    id: WorkerId,
    times: Mutex<Times>,
    held: Mutex<Vec<i64>>,
    over: AtomicBool,
    plan: Arc<NewPlan>,
}

impl Worker {
    async fn run(self: Arc<Self>) {
        let (send, receive) = mpsc::channel(256);
        let committing = tokio::spawn(Arc::clone(&self).commit(receive));
        let renewing = tokio::spawn(Arc::clone(&self).renew());
        let claimant = Claimant {
            device_kind: "bench",
            rate: Some(DeviceRate {
                key: RATE_KEY,
                flops_per_second: FLOPS / SECONDS,
            }),
            ..claimant(self.id)
        };
        while !self.over.load(Ordering::Relaxed) {
            assert!(
                !committing.is_finished() && !renewing.is_finished(),
                "failed"
            );
            let started = Instant::now();
            let claims = self.store.claim(&claimant, None).await.unwrap();
            let took = milliseconds(started);
            if claims.is_empty() {
                self.times.lock().unwrap().empty_claims.push(took);
                // As idle workers do.
                self.store.reap(None).await.unwrap();
                tokio::time::sleep(POLL).await;
                continue;
            }
            {
                let mut times = self.times.lock().unwrap();
                times.claims.push(took);
                times.claimed += claims.len();
            }
            let fences = claims.iter().map(|claim| claim.fence);
            self.held.lock().unwrap().extend(fences);
            for claim in claims {
                let shard = match claim.work {
                    Work::Shard(shard) => shard,
                    Work::Plan(_) => {
                        let planned = self.store.commit_plan(self.id, claim.fence, &self.plan);
                        assert!(planned.await.unwrap());
                        continue;
                    }
                };
                let seconds = shard.flops / FLOPS * SECONDS;
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                send.send((claim.fence, outcome(&shard, seconds)))
                    .await
                    .unwrap();
            }
        }
        drop(send);
        committing.await.unwrap();
        renewing.await.unwrap();
    }

    /// Commits all that is ready in one call.
    async fn commit(self: Arc<Self>, mut ready: mpsc::Receiver<(i64, ShardOutcome)>) {
        let mut batch = Vec::new();
        while ready.recv_many(&mut batch, 64).await > 0 {
            let outcomes: Vec<_> = batch.iter().map(|(fence, o)| (*fence, o)).collect();
            let started = Instant::now();
            self.store.commit_shards(self.id, &outcomes).await.unwrap();
            let took = milliseconds(started);
            let mut times = self.times.lock().unwrap();
            times.commits.push(took);
            times.committed += outcomes.len();
            let ended: Vec<i64> = batch.drain(..).map(|(fence, _)| fence).collect();
            self.held
                .lock()
                .unwrap()
                .retain(|fence| !ended.contains(fence));
        }
    }

    async fn renew(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            tokio::time::sleep(HEARTBEAT).await;
            let held: Vec<_> = self
                .held
                .lock()
                .unwrap()
                .iter()
                .map(|f| (*f, Some(1.0)))
                .collect();
            let started = Instant::now();
            self.store.renew(self.id, &held, LEASE, None).await.unwrap();
            self.times
                .lock()
                .unwrap()
                .renewals
                .push(milliseconds(started));
        }
    }
}

fn outcome(shard: &ShardClaim, seconds: f64) -> ShardOutcome {
    ShardOutcome {
        seconds,
        ..compute(shard)
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// What the server has done.
struct Load {
    transactions: i64,
    read: i64,
    written: i64,
    cpu: f64,
    bytes: i64,
    wal: i64,
}

impl Load {
    async fn now(connection: &mut PgConnection) -> Self {
        // The statistics of other sessions come in with a delay of at most a second.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let row = sqlx::query(
            "select xact_commit + xact_rollback as transactions, tup_returned as read,
                    tup_inserted + tup_updated + tup_deleted as written,
                    pg_database_size(current_database()) as bytes,
                    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint as wal,
                    pg_backend_pid() as backend
             from pg_stat_database where datname = current_database()",
        );
        let row = row.fetch_one(connection).await.unwrap();
        Self {
            transactions: row.get("transactions"),
            read: row.get("read"),
            written: row.get("written"),
            cpu: server_cpu(row.get("backend")),
            bytes: row.get("bytes"),
            wal: row.get("wal"),
        }
    }
}

/// CPU seconds of a process, and of its children that have ended; and its parent.
fn cpu_of(process: i32) -> Option<(f64, f64, i32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |index: usize| Some(fields.get(index)?.parse::<f64>().ok()? / 100.0);
    let own = ticks(11)? + ticks(12)?;
    Some((own, ticks(13)? + ticks(14)?, fields.get(1)?.parse().ok()?))
}

/// CPU seconds of all processes of the server.
fn server_cpu(backend: i32) -> f64 {
    let (_, _, server) = cpu_of(backend).expect("the server runs on this host");
    let (own, of_ended, _) = cpu_of(server).expect("the server runs");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of_children: f64 = processes
        .filter_map(cpu_of)
        .filter(|(_, _, parent)| *parent == server)
        .map(|(own, _, _)| own)
        .sum();
    own + of_ended + of_children
}

async fn workers(ledger: &Ledger) -> Vec<Arc<Worker>> {
    let plan = Arc::new(plan());
    let mut workers = Vec::new();
    for index in 0..WORKERS {
        let id = ledger.worker_with(&format!("w{index}"), &["bench"]).await;
        workers.push(Arc::new(Worker {
            // A worker has two for each device, and one for the heartbeat.
            store: Store::connect(ledger.database.url(), 2).await.unwrap(),
            id,
            times: Mutex::default(),
            held: Mutex::default(),
            over: AtomicBool::new(false),
            plan: Arc::clone(&plan),
        }));
    }
    workers
}

fn plan() -> NewPlan {
    // Lengths that differ, as those of texts do.
    let lengths: Vec<u64> = (0..SHARDS * WINDOWS).map(|d| 8 - d % 2).collect();
    let constants = PlanConstants {
        micro_batch_tokens: 4 * WINDOW,
        max_shards: u32::try_from(SHARDS).unwrap(),
        tail_divisor: 0,
        ..PlanConstants::default()
    };
    let rolling = Convention::Rolling { window: WINDOW };
    let mut plan = plan_by(&[(&lengths, rolling)], constants);
    // That of the tests names every length; a real one is a digest.
    "bench".clone_into(&mut plan.datasets[0].content_key);
    plan
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let path = std::env::args().nth(1).expect("usage: ledger_bench RESULT");
    let ledger = Ledger::fresh().await;
    let mut connection = ledger.database.connect().await;
    let workers = workers(&ledger).await;
    let mut running = JoinSet::new();
    let server = ledger.store.clone();
    let maintenance = tokio::spawn(async move {
        loop {
            server.reap(None).await.unwrap();
            tokio::time::sleep(POLL).await;
        }
    });
    for worker in &workers {
        running.spawn(Arc::clone(worker).run());
    }
    // Idle for some rounds, as workers are before a job comes: their statements are prepared, and
    // the server has planned them for an empty ledger.
    tokio::time::sleep(8 * POLL).await;
    for worker in &workers {
        *worker.times.lock().unwrap() = Times::default();
    }

    let before = Load::now(&mut connection).await;
    let own_before = cpu_of(std::process::id().cast_signed()).unwrap().0;
    let posted = Instant::now();
    let job = ledger.job_of(&request(&["a"])).await;
    let mut planned = posted;
    loop {
        match ledger.state(job).await.state {
            JobState::Queued | JobState::Planning => planned = Instant::now(),
            JobState::Running => {}
            _ => break,
        }
        if let Some(ended) = running.try_join_next() {
            ended.expect("a worker failed");
        }
        tokio::time::sleep(POLL / 10).await;
    }
    let seconds = planned.elapsed().as_secs_f64();
    let own = cpu_of(std::process::id().cast_signed()).unwrap().0 - own_before;
    let after = Load::now(&mut connection).await;
    for worker in &workers {
        worker.over.store(true, Ordering::Relaxed);
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    maintenance.abort();

    let mut times = Times::default();
    for worker in &workers {
        let of_worker = worker.times.lock().unwrap();
        times.claims.extend(&of_worker.claims);
        times.empty_claims.extend(&of_worker.empty_claims);
        times.commits.extend(&of_worker.commits);
        times.renewals.extend(&of_worker.renewals);
        times.claimed += of_worker.claimed;
        times.committed += of_worker.committed;
    }
    let shards = verify(&ledger, job).await;
    let planning = (planned - posted).as_secs_f64();
    let report = report(
        &mut connection,
        &mut times,
        shards,
        (seconds, planning, own),
        (&before, &after),
    )
    .await;
    print!("{report}");
    fs::write(&path, report).unwrap();
    let p99 = percentile(&times.claims, 0.99);
    assert!(
        p99 < LIMIT,
        "99 of 100 claims took up to {p99} ms; {LIMIT} ms are allowed"
    );
}

/// Every shard was counted once.
async fn verify(ledger: &Ledger, job: JobId) -> usize {
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(result.complete);
    let tokens: u64 = (0..SHARDS * WINDOWS).map(|d| 8 - d % 2).sum();
    assert_eq!(result.performance.counted_tokens, tokens);
    let shards = ledger.store.shards(job, 0, u32::MAX).await.unwrap();
    for shard in &shards {
        let committed = shard
            .attempts
            .iter()
            .filter(|a| a.outcome == Some(AttemptOutcome::Committed));
        assert_eq!(committed.count(), 1, "shard {}", shard.index);
    }
    shards.len()
}

fn percentile(sorted: &[f64], part: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of a length
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

async fn report(
    connection: &mut PgConnection,
    times: &mut Times,
    shards: usize,
    (seconds, planning, own_cpu): (f64, f64, f64),
    (before, after): (&Load, &Load),
) -> String {
    let setting: String = sqlx::query_scalar(
        "select 'PostgreSQL ' || current_setting('server_version')
             || ', fsync ' || current_setting('fsync')
             || ', shared_buffers ' || current_setting('shared_buffers')",
    )
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    let mut text = format!(
        "# The ledger under load\n\n\
         Written by `scripts/bench-ledger.sh`. {WORKERS} simulated workers of one device each, \
         which wait {SECONDS} s instead of\ncomputing a shard, run a job of {shards} shards of \
         {WINDOWS} windows. Each has its own connections, renews its\nleases every {} s and \
         commits what is ready in one call. Workers, maintenance and PostgreSQL share the\n\
         machine.\n\n\
         | call | number | p50 ms | p99 ms | max ms |\n| --- | --: | --: | --: | --: |\n",
        HEARTBEAT.as_secs()
    );
    for (name, of_call) in [
        ("claim", &mut times.claims),
        ("claim that finds nothing", &mut times.empty_claims),
        ("commit", &mut times.commits),
        ("renewal", &mut times.renewals),
    ] {
        of_call.sort_by(f64::total_cmp);
        let at = |part| percentile(of_call, part);
        let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
        let number = of_call.len();
        writeln!(
            text,
            "| {name} | {number} | {p50:.1} | {p99:.1} | {most:.1} |"
        )
        .unwrap();
    }
    let server = after.cpu - before.cpu;
    let per_shard = |n: i64| n as f64 / shards as f64;
    write!(
        text,
        "\n- {:.1} shards per second: {seconds:.1} s from the plan to the end, of {:.1} s that \
         {WORKERS} devices need at least.\n\
         - {:.1} shards a claim, {:.1} shards a commit. Planning took {planning:.1} s.\n\
         - Per shard: {:.1} transactions, {:.1} rows read, {:.1} rows written, {:.1} kB of \
         write-ahead log.\n\
         - CPU seconds: {server:.1} of the server ({:.1} ms a shard), {own_cpu:.1} of the \
         simulated workers; together {:.0} % of the cores.\n\
         - The database is {:.0} MB, {:.0} MB larger than before.\n\
         - {} cores ({}), {setting}, Assay {}.\n",
        shards as f64 / seconds,
        shards as f64 * SECONDS / WORKERS as f64,
        times.claimed as f64 / times.claims.len() as f64,
        times.committed as f64 / times.commits.len() as f64,
        per_shard(after.transactions - before.transactions),
        per_shard(after.read - before.read),
        per_shard(after.written - before.written),
        per_shard(after.wal - before.wal) / 1e3,
        server / shards as f64 * 1e3,
        (server + own_cpu) / (seconds + planning) / cores() * 100.0,
        after.bytes as f64 / 1e6,
        (after.bytes - before.bytes) as f64 / 1e6,
        cores(),
        processor(),
        env!("CARGO_PKG_VERSION"),
    )
    .unwrap();
    text
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}

fn processor() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    name.map_or_else(String::new, |name| {
        name.trim_start_matches([' ', '\t', ':']).to_owned()
    })
}
