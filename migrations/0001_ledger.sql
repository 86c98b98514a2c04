-- The ledger: jobs, their datasets and shards, who attempted what, and the sums that count.
--
-- The schema enforces the state machine (docs/state-machine.md). Whatever a program does, a job
-- cannot have ended without a time, a shard cannot be done without the attempt that did it, and a
-- dataset cannot have finished with tokens missing or counted twice.
--
-- Lock order, for every transaction that changes a job: jobs row, attempts (by fence), shards,
-- datasets. Claims lock nothing but the row they claim, and skip what is locked.

create type job_state as enum ('queued', 'planning', 'running', 'succeeded', 'failed', 'cancelled');
create type shard_state as enum ('queued', 'running', 'done');
create type attempt_kind as enum ('plan', 'primary');
create type attempt_outcome as enum ('committed', 'failed', 'lost', 'released', 'cancelled');

-- One row per run of a worker process. Live while lease_until lies ahead and stopped_at is null.
create table workers (
    id uuid primary key,
    name text not null,
    version text not null,
    devices jsonb not null,
    started_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    lease_until timestamptz not null,
    stopped_at timestamptz
);

-- `GET /readyz` and the retry rule ("another worker, where there is one") ask for live workers.
create index workers_live on workers (lease_until) where stopped_at is null;

create table jobs (
    id uuid primary key,
    name text,
    state job_state not null default 'queued',
    model text not null,
    method jsonb not null,
    dtype text not null,
    tags jsonb not null default '{}',
    -- The body as the caller sent it, compared when an idempotency key comes again.
    body jsonb not null,
    idempotency_key text,
    -- What the planner found and fixed: digests, constants, versions (store::PlanFacts).
    plan jsonb,
    datasets_left integer not null,
    plan_errors integer not null default 0,
    plan_losses integer not null default 0,
    -- api::JobError
    error jsonb,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,
    constraint jobs_idempotency_key_unique unique (idempotency_key),
    constraint jobs_ended_has_time
        check ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    constraint jobs_started_has_time
        check (state in ('queued', 'failed', 'cancelled') or started_at is not null),
    constraint jobs_run_has_plan check (state not in ('running', 'succeeded') or plan is not null),
    constraint jobs_plan_precedes_run check (state not in ('queued', 'planning') or plan is null),
    constraint jobs_failed_has_error check ((state = 'failed') = (error is not null)),
    constraint jobs_succeeded_is_complete check (state <> 'succeeded' or datasets_left = 0),
    constraint jobs_datasets_left_range check (datasets_left >= 0)
);

-- Claims look for the oldest job to plan and for running jobs; ids are UUIDv7, so they sort by age.
create index jobs_open on jobs (state, id) where state in ('queued', 'running');
-- `GET /jobs?tag=key:value`
create index jobs_tags on jobs using gin (tags jsonb_path_ops);

create table datasets (
    job_id uuid not null references jobs on delete cascade,
    index integer not null,
    name text not null,
    -- api::DatasetRef
    source jsonb not null,
    -- Fixed by the plan:
    digest text,
    tokens_digest text,
    clusters jsonb,
    planned_tokens bigint,
    shards integer not null default 0,
    shards_left integer not null default 0,
    -- Counted so far:
    scored_tokens bigint not null default 0,
    seconds double precision not null default 0,
    -- scoring::DatasetStatistics
    statistics jsonb,
    finished_at timestamptz,
    primary key (job_id, index),
    unique (job_id, name),
    constraint datasets_finished_is_complete check (
        (finished_at is null and statistics is null)
        or (statistics is not null and shards_left = 0 and scored_tokens = planned_tokens)
    ),
    constraint datasets_never_overcounted check (scored_tokens <= coalesce(planned_tokens, 0)),
    constraint datasets_shards_left_range check (shards_left between 0 and shards)
);

-- Facts and sums of 4,096 consecutive documents: row `chunk` holds documents from chunk * 4096.
-- A row per document would cost more in headers than in numbers.
create table document_chunks (
    job_id uuid not null,
    dataset integer not null,
    chunk integer not null,
    tokens bigint[] not null,
    bytes bigint[] not null,
    words bigint[] not null,
    -- Written when the dataset ends:
    scored bigint[],
    nll numeric[],
    primary key (job_id, dataset, chunk),
    foreign key (job_id, dataset) references datasets on delete cascade,
    constraint document_chunks_size check (cardinality(tokens) between 1 and 4096),
    constraint document_chunks_aligned check (
        cardinality(bytes) = cardinality(tokens)
        and cardinality(words) = cardinality(tokens)
        and (scored is null) = (nll is null)
        and coalesce(cardinality(scored), cardinality(tokens)) = cardinality(tokens)
        and coalesce(cardinality(nll), cardinality(tokens)) = cardinality(tokens)
    )
);

create table shards (
    job_id uuid not null references jobs on delete cascade,
    index integer not null,
    dataset integer not null,
    state shard_state not null default 'queued',
    -- [micro-batch][window] = [document, start, len, from, to]
    micro_batches jsonb not null,
    windows bigint not null,
    scored_tokens bigint not null check (scored_tokens > 0),
    flops double precision not null,
    spans_digest text not null,
    errors integer not null default 0,
    losses integer not null default 0,
    -- The committed attempt and its sums by cluster, in units of 2^-32 nat:
    fence bigint,
    clusters integer[],
    units bigint[],
    scored bigint[],
    seconds double precision,
    committed_at timestamptz,
    primary key (job_id, index),
    foreign key (job_id, dataset) references datasets on delete cascade,
    constraint shards_done_has_sums check (
        (state = 'done') = (
            fence is not null and clusters is not null and units is not null
            and scored is not null and seconds is not null and committed_at is not null
        )
    ),
    constraint shards_sums_aligned check (
        state <> 'done'
        or (cardinality(units) = cardinality(clusters) and cardinality(scored) = cardinality(clusters))
    )
);

-- Claims take the first queued shard of a job; done shards leave the index.
create index shards_queued on shards (job_id, index) where state = 'queued';

-- One claim of a shard (or of a job's planning, shard null) by a worker. Its fence comes with
-- every write of that worker; once outcome is set, writes under the fence change nothing.
create table attempts (
    fence bigint generated always as identity primary key,
    job_id uuid not null references jobs on delete cascade,
    shard integer,
    kind attempt_kind not null,
    worker_id uuid not null references workers,
    device text not null,
    device_kind text not null,
    started_at timestamptz not null default now(),
    lease_until timestamptz not null,
    finished_at timestamptz,
    outcome attempt_outcome,
    -- A result came after the attempt had ended otherwise; it was dropped.
    late boolean not null default false,
    -- Tokens scored by this attempt as far as it told, counted or not.
    computed_tokens bigint not null default 0,
    error_code text,
    error text,
    foreign key (job_id, shard) references shards (job_id, index),
    constraint attempts_ended_has_time check ((outcome is null) = (finished_at is null)),
    constraint attempts_plan_has_no_shard check ((kind = 'plan') = (shard is null)),
    constraint attempts_failed_has_error check ((outcome is not distinct from 'failed') = (error is not null))
);

-- At most one live attempt per shard, and per planning of a job.
create unique index attempts_one_live on attempts (job_id, coalesce(shard, -1)) where outcome is null;
-- A shard is committed once.
create unique index attempts_one_commit
    on attempts (job_id, coalesce(shard, -1)) where outcome = 'committed';
-- Renewals and releases of a worker.
create index attempts_live_by_worker on attempts (worker_id, fence) where outcome is null;
-- The reaper.
create index attempts_live_by_lease on attempts (lease_until) where outcome is null;
-- `GET /jobs/{id}/shards`, and the retry rule that looks for earlier failures.
create index attempts_by_shard on attempts (job_id, shard, fence);
