-- What the worker that plans a job fetches from a hub.

alter table jobs
    -- Bytes that are there, of all that are wanted. Null until something is fetched.
    add column download_bytes bigint,
    add column download_total_bytes bigint,
    add constraint jobs_download_range check (
        (download_bytes is null) = (download_total_bytes is null)
        and (download_bytes is null or download_bytes between 0 and download_total_bytes)
    );
