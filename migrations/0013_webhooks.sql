-- Where the end of a job is told, and how far that is.
--
-- The delivery is written by the trigger, in the transaction that ends the job: whoever is killed
-- when, a job that has ended has its delivery. Servers claim deliveries that are due, and send them
-- outside of any transaction.
create table webhooks (
    job_id uuid primary key references jobs on delete cascade,
    url text not null,
    -- Host and port of it. One delivery at a time goes to each, so that none holds up the others.
    receiver text not null,
    -- The key that deliveries are signed with. The only place that holds it.
    key bytea not null,
    constraint webhooks_key_length check (length(key) between 24 and 64)
);

create type delivery_state as enum ('pending', 'delivered', 'failed');

create table deliveries (
    job_id uuid not null references webhooks on delete cascade,
    number integer not null,
    state delivery_state not null default 'pending',
    receiver text not null,
    created_at timestamptz not null default clock_timestamp(),
    -- When it is to be claimed: at the next try, or, while somebody sends it, once they have had
    -- their time and are not to be waited for any longer.
    due_at timestamptz,
    ended_at timestamptz,
    -- All attempts there ever were: the fence of the last one.
    attempts integer not null default 0,
    -- Those since it was asked for last, by which the schedule goes.
    tries integer not null default 0,
    primary key (job_id, number),
    constraint deliveries_number_range check (number > 0),
    constraint deliveries_tries_range check (tries between 0 and attempts),
    constraint deliveries_pending_is_due check ((state = 'pending') = (due_at is not null)),
    constraint deliveries_ended_has_time check ((state <> 'pending') = (ended_at is not null))
);

-- What is to be sent, by receiver, and what the metrics count: both without what has ended.
create index deliveries_due on deliveries (receiver, due_at) where state = 'pending';
create index deliveries_by_state on deliveries (state);

create table delivery_attempts (
    job_id uuid not null,
    delivery integer not null,
    number integer not null,
    started_at timestamptz not null,
    finished_at timestamptz,
    -- What the receiver answered, if it did.
    status integer,
    -- Why it is not delivered, if it is not.
    error text,
    primary key (job_id, delivery, number),
    foreign key (job_id, delivery) references deliveries on delete cascade,
    constraint delivery_attempts_ended_says_how
        check ((finished_at is not null) = (status is not null or error is not null))
);

create function add_delivery() returns trigger language plpgsql as $$
begin
    insert into deliveries (job_id, number, receiver, due_at)
    select job_id, 1, receiver, clock_timestamp() from webhooks where job_id = new.id;
    return null;
end
$$;

create trigger jobs_add_delivery after update of finished_at on jobs
    for each row when (old.finished_at is null and new.finished_at is not null)
    execute function add_delivery();
