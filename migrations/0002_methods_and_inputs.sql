-- Several methods a job, numbers of one token each, numbers taken from earlier jobs, uploads.
--
-- A row of `datasets` is from here on a *row* of the result: one dataset under one method, numbered
-- dataset_index * methods + method_index. A job of before has one method, so its rows keep their
-- numbers. Lock order as before; the spans of tokens are written after their shard.

alter table jobs
    -- Every counted token's number is kept. `method` holds an object or a list, as it was asked.
    add column token_output boolean not null default false,
    -- Numbers of earlier jobs may be taken.
    add column reuse boolean not null default true;

-- `datasets_left` counts rows.

alter table datasets
    -- api::Method, defaults filled in
    add column method jsonb,
    add column dataset_index integer,
    add column method_index integer not null default 0,
    -- Fixed by the plan:
    -- Id of the token at index -1: before each document, or before the joined text.
    add column prefix bigint,
    -- Whether words and bytes divide into anything: every token of the text counts.
    add column text_measures boolean,
    -- Names what decides the numbers but for the device kind: equal keys, equal numbers.
    add column content_key text,
    -- Names of the groups, by number; document_chunks.groups says which document is in which.
    add column group_names jsonb,
    -- Of the planner, about this row.
    add column warnings jsonb not null default '[]',
    -- The device kind of every counted shard, set at the end; null if there were several, or if a
    -- shard was split: such numbers are no other job's.
    add column device_kind text,
    -- The job that scored it, never one that took it from another.
    add column reused_from uuid references jobs;

update datasets d
set method = j.method,
    dataset_index = d.index,
    prefix = (j.plan ->> 'prefix')::bigint,
    text_measures = case when d.planned_tokens is not null then true end
from jobs j
where j.id = d.job_id;

alter table datasets
    alter column method set not null,
    alter column dataset_index set not null,
    alter column method_index drop default,
    drop constraint datasets_job_id_name_key,
    -- `index` of a row is looked up by these.
    add constraint datasets_row_unique unique (job_id, name, method_index),
    add constraint datasets_index_range
        check (index >= 0 and dataset_index >= 0 and method_index >= 0),
    add constraint datasets_prefix_range check (prefix between 0 and 4294967295),
    add constraint datasets_planned_at_once check (
        num_nonnulls(digest, tokens_digest, clusters, planned_tokens, text_measures) in (0, 5)
    ),
    -- A planned row has shards of its own, or everything from another job.
    add constraint datasets_planned_has_source check (
        (planned_tokens is null and shards = 0 and reused_from is null)
        or (planned_tokens is not null and (shards > 0) = (reused_from is null))
    ),
    -- As before, and now for every row that has an end.
    drop constraint datasets_finished_is_complete,
    add constraint datasets_finished_is_complete check (
        (finished_at is null and statistics is null)
        or (finished_at is not null and statistics is not null and planned_tokens is not null
            and shards_left = 0 and scored_tokens = planned_tokens)
    ),
    add constraint datasets_device_kind_at_the_end
        check (device_kind is null or finished_at is not null),
    add constraint datasets_reused_is_finished check (
        reused_from is null
        or (reused_from <> job_id and finished_at is not null and device_kind is not null
            and content_key is not null and seconds = 0)
    );

-- A method counts once for a dataset. By digest, since an index entry must be short and the text
-- between documents may be long.
create unique index datasets_method_unique on datasets (job_id, dataset_index, md5(method::text));
-- The planner's question for numbers to take: those that were scored, not those that were taken.
create index datasets_reusable on datasets (content_key, device_kind, job_id)
    where device_kind is not null and reused_from is null;
-- Whether an open job needs the file of an upload.
create index datasets_upload on datasets ((source ->> 'upload_digest'))
    where source ->> 'upload_digest' is not null;

alter table document_chunks
    -- The group of each document, an index into datasets.group_names; null without groups.
    add column groups integer[],
    add constraint document_chunks_groups_aligned check (
        groups is null
        or (cardinality(groups) = cardinality(tokens) and array_position(groups, null) is null)
    );

alter table shards
    -- Times that its micro-batches are halved to fit in memory; raised before they are computed so,
    -- and kept for every later attempt.
    add column split_depth integer not null default 0,
    add constraint shards_split_depth_range check (split_depth >= 0),
    -- What token_spans refers to: a shard has a fence exactly while it is done.
    add constraint shards_committed_unique unique (job_id, dataset, index, fence);

-- The numbers of the tokens that one window predicts, of jobs with token_output. A row belongs to
-- the attempt that its shard was counted by: the foreign key holds for no shard that is not done.
create table token_spans (
    job_id uuid not null,
    dataset integer not null,
    -- What the window was cut from: the document, or 0 where documents are joined.
    stream bigint not null,
    -- Index in the stream of the first token.
    first bigint not null,
    shard integer not null,
    fence bigint not null,
    -- A number for each token, little endian: its id (32 bits), the bytes of the text of the
    -- document that owns it from start to end (32 bits each), and its NLL in units of 2^-32 nat
    -- (64 bits, signed; the smallest number if the token does not count).
    ids bytea not null,
    starts bytea not null,
    ends bytea not null,
    units bytea not null,
    primary key (job_id, dataset, stream, first),
    foreign key (job_id, dataset, shard, fence)
        references shards (job_id, dataset, index, fence) on delete cascade,
    constraint token_spans_range check (stream >= 0 and first >= 0),
    constraint token_spans_aligned check (
        octet_length(ids) > 0 and octet_length(ids) % 4 = 0
        and octet_length(starts) = octet_length(ids)
        and octet_length(ends) = octet_length(ids)
        and octet_length(units) = 2 * octet_length(ids)
    )
);

-- Names of uploaded datasets. The bytes lie in files named by their digest; a job keeps the digest
-- that the name stood for (datasets.source), so a name may be given to other bytes at any time.
create table uploads (
    -- Lists page in the order of the bytes, whatever the database's language.
    name text collate "C" primary key,
    digest text not null,
    bytes bigint not null check (bytes >= 0),
    created_at timestamptz not null default now()
);

-- Whether a name still needs a file.
create index uploads_digest on uploads (digest);
