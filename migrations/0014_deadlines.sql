-- How long a job may wait and run; looked at by whoever ends leases that have run out.
alter table jobs
    add column queue_seconds integer,
    add column run_seconds integer,
    add constraint jobs_deadlines_range check (queue_seconds > 0 and run_seconds > 0);

-- The jobs that a deadline may still end. As a rule there are few.
create index jobs_with_deadline on jobs (id)
    where finished_at is null and (queue_seconds is not null or run_seconds is not null);

-- Jobs are deleted once they are old, where the service is told to; not those that others refer to.
create index jobs_ended on jobs (finished_at) where finished_at is not null;
create index jobs_gate_baseline on jobs ((gate ->> 'baseline')) where gate is not null;
create index datasets_reused_from on datasets (reused_from) where reused_from is not null;

-- What deleted jobs had counted, so that counters of all time do not shrink with them.
create table removed_jobs (
    state job_state primary key,
    jobs bigint not null
);
create table removed_attempts (
    kind text not null,
    outcome text not null,
    device_kind text not null,
    attempts bigint not null,
    tokens bigint not null,
    computing bigint not null,
    claiming bigint not null,
    loading bigint not null,
    committing bigint not null,
    late bigint not null,
    revoked bigint not null,
    primary key (kind, outcome, device_kind)
);
create table removed_claims (
    work text not null,
    class integer not null,
    claims bigint not null,
    microseconds bigint not null,
    primary key (work, class)
);
