-- Several attempts at a shard (copies, audits), speeds of devices, baselines, workers out of
-- service. Lock order as before; rates of devices are written last.

alter table workers
    -- Nothing is claimed by such a worker, and nothing it brings counts.
    add column out_of_service_at timestamptz,
    add column out_of_service_reason text,
    -- The last trouble that the worker told of itself.
    add column error_code text,
    add column error text,
    add column error_at timestamptz,
    add constraint workers_out_of_service_has_reason
        check ((out_of_service_at is null) = (out_of_service_reason is null)),
    add constraint workers_error_has_time
        check (num_nonnulls(error_code, error, error_at) in (0, 3));

create type baseline_state as enum ('wanted', 'running', 'done');
create type audit_state as enum ('wanted', 'disputed', 'agreed', 'waived');

alter table jobs
    -- Higher is claimed first; among equals the older job.
    add column priority integer not null default 0,
    -- The share of the shards that is computed twice.
    add column audit double precision not null default 0,
    -- Shards whose audit is neither agreed on nor waived. No row finishes before it is 0: until
    -- then any of them may be computed again.
    add column audits_left integer not null default 0,
    -- auto | measure | skip
    add column baseline text not null default 'auto',
    -- Null: no device computes alone. While it is wanted or running, nobody but the device that
    -- measures gets a shard of the job.
    add column baseline_state baseline_state,
    -- store::BaselineFacts
    add column baseline_result jsonb,
    -- Names what the speed of a device depends on besides its kind: model shape, dtype, window.
    add column rate_key text,
    add constraint jobs_priority_range check (priority between -100 and 100),
    add constraint jobs_audit_range check (audit >= 0 and audit <= 1),
    add constraint jobs_audits_left_range check (audits_left >= 0),
    add constraint jobs_baseline_known check (baseline in ('auto', 'measure', 'skip')),
    add constraint jobs_baseline_result_at_the_end
        check (baseline_result is null or coalesce(baseline_state = 'done', false)),
    add constraint jobs_succeeded_is_audited check (state <> 'succeeded' or audits_left = 0);

drop index jobs_open;
-- Claims look for the job of the highest priority, then the oldest.
create index jobs_open on jobs (state, priority desc, id) where state in ('queued', 'running');

alter table datasets
    -- Operations of its shards that are not counted yet; for the size of claims alone, so it may
    -- carry the rounding of its additions.
    add column flops_left double precision not null default 0;

update datasets d
set flops_left = (
    select coalesce(sum(s.flops), 0) from shards s
    where s.job_id = d.job_id and s.dataset = d.index and s.state <> 'done'
);

alter table shards
    -- Null: not to be audited.
    add column audit audit_state;

drop index shards_queued;
-- Claims take the largest queued shards of a job, or the smallest; done shards leave the index.
create index shards_queued on shards (job_id, flops desc, index) where state = 'queued';
-- Auditors look for work.
create index shards_to_audit on shards (job_id, index)
    where state = 'done' and audit in ('wanted', 'disputed');
-- The reaper looks for disputes that nobody can decide. As a rule there are none.
create index shards_disputed on shards (job_id) where state = 'done' and audit = 'disputed';

alter table attempts
    -- When it should end, by the rate of its device; null while that is unknown.
    add column expected_at timestamptz,
    -- One of the attempts that the baseline is measured by.
    add column solo boolean not null default false,
    -- As the worker measured: the device computed, claimed, loaded the model, waited to be counted.
    add column seconds double precision,
    add column claim_seconds double precision,
    add column load_seconds double precision,
    add column commit_seconds double precision,
    -- Times that micro-batches were halved in what was computed.
    add column split_depth integer,
    -- Sums by cluster of an audit that has committed, as in shards.
    add column clusters integer[],
    add column units bigint[],
    add column scored bigint[],
    add constraint attempts_audit_has_sums check (
        (kind = 'audit' and coalesce(outcome in ('committed', 'revoked'), false))
            = (num_nonnulls(clusters, units, scored) = 3)
    ),
    add constraint attempts_sums_aligned check (
        num_nonnulls(clusters, units, scored) in (0, 3)
        and (clusters is null or (
            cardinality(units) = cardinality(clusters)
            and cardinality(scored) = cardinality(clusters)
        ))
    );

drop index attempts_one_live;
-- At most one live attempt of each kind per shard, and per planning of a job.
create unique index attempts_one_live
    on attempts (job_id, coalesce(shard, -1), kind) where outcome is null;
drop index attempts_one_commit;
-- A shard is counted once. Audits are compared, not counted.
create unique index attempts_one_commit
    on attempts (job_id, coalesce(shard, -1)) where outcome = 'committed' and kind <> 'audit';
-- The reaper reads all live attempts instead: there are a few for each device. So a renewal changes
-- no index, and stays within its page.
drop index attempts_live_by_lease;
alter table attempts set (fillfactor = 80);
-- Whether the baseline is still being measured, and what by.
create index attempts_solo on attempts (job_id) where solo;
-- When the first shard of a job was claimed, which everybody asks who looks at the job.
create index attempts_by_start on attempts (job_id, started_at) where kind <> 'plan';
-- What a worker did lately: failures in a row, results that came late.
create index attempts_by_worker on attempts (worker_id, fence);

-- How fast devices of a kind are, learned from the shards they computed.
create table device_rates (
    device_kind text not null,
    -- jobs.rate_key
    rate_key text not null,
    -- Planned floating-point operations per second of device time.
    flops_per_second double precision not null check (flops_per_second > 0),
    -- The same of a device that computed alone, where a baseline was measured.
    solo_flops_per_second double precision check (solo_flops_per_second > 0),
    updated_at timestamptz not null default now(),
    primary key (device_kind, rate_key)
);
