-- What a job is held against when it has succeeded (api::Gate), the baseline resolved. Null of jobs
-- that asked for no gate, and of those that are older. No foreign key: a gate does not keep its
-- baseline.
alter table jobs add column gate jsonb;
