-- What `GET /metrics` asks of the ledger every few seconds.

-- How many jobs there are in each state, from the index alone.
create index jobs_by_state on jobs (state);
-- All that still changes of an attempt once it has ended. As a rule there is little of it.
create index attempts_changed_later on attempts (outcome) where late or outcome = 'revoked';
