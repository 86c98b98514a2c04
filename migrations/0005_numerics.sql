-- Jobs whose devices may compute in a dtype of their own.

alter table jobs
    -- uniform | adaptive
    add column numerics text not null default 'uniform',
    add constraint jobs_numerics_known check (numerics in ('uniform', 'adaptive'));

alter table attempts
    -- What was computed in, if not the job's dtype.
    add column dtype text,
    -- Of an attempt that scored its shard in the job's dtype too: tokens, and over them the sums of
    -- the differences (own dtype less the job's) in nats and of their squares.
    add column compared_tokens bigint,
    add column difference double precision,
    add column difference_squares double precision,
    add constraint attempts_compared_is_whole check (
        num_nonnulls(compared_tokens, difference, difference_squares) in (0, 3)
        and (compared_tokens is null or dtype is not null)
    );
