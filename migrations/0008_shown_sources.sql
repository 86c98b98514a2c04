-- What a job shows of its datasets. Documents of a request lie beside the table, up to 1 MB of them,
-- and whoever asks for the job would have them fetched and unpacked to be left out.

alter table datasets
    add column shown_source jsonb not null generated always as (source - 'documents') stored;
