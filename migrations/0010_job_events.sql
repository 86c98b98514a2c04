-- What happened to a job, in order: what GET /jobs/{id}/events tells, each event once.
--
-- Triggers write it, so that no program can change a state and say nothing. Whoever changes a job's
-- state or finishes one of its rows holds the job's row until the transaction ends, so events are
-- committed in the order of their numbers: who has seen number n misses none below it.
create table job_events (
    job_id uuid not null references jobs on delete cascade,
    number integer not null,
    at timestamptz not null default clock_timestamp(),
    -- The state that the job is in from then on, or the row that has been finished.
    state job_state,
    dataset integer,
    primary key (job_id, number),
    constraint job_events_number_range check (number > 0),
    constraint job_events_of_one_thing check (num_nonnulls(state, dataset) = 1)
);

create function add_job_event(of_job uuid, of_state job_state, of_dataset integer) returns void
language sql as $$
    insert into job_events (job_id, number, state, dataset)
    select of_job, coalesce(max(number), 0) + 1, of_state, of_dataset
    from job_events where job_id = of_job
$$;

create function tell_job_state() returns trigger language plpgsql as $$
begin
    perform add_job_event(new.id, new.state, null);
    return null;
end
$$;

create function tell_finished_row() returns trigger language plpgsql as $$
begin
    perform add_job_event(new.job_id, null, new.index);
    return null;
end
$$;

create trigger jobs_tell_creation after insert on jobs
    for each row execute function tell_job_state();
create trigger jobs_tell_state after update of state on jobs
    for each row when (old.state is distinct from new.state) execute function tell_job_state();
create trigger datasets_tell_end after update of finished_at on datasets
    for each row when (old.finished_at is null and new.finished_at is not null)
    execute function tell_finished_row();

-- Of older jobs: their rows that have been finished, and where they stand.
insert into job_events (job_id, number, at, state, dataset)
select job_id, row_number() over (partition by job_id order by at, is_end, dataset), at, state,
       dataset
from (
    select id as job_id, coalesce(finished_at, started_at, created_at) as at, state,
           null::integer as dataset, finished_at is not null as is_end
    from jobs
    union all
    select job_id, finished_at, null, index, false from datasets where finished_at is not null
) e;
