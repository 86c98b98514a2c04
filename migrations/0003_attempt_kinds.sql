-- New labels, in a migration of their own: a label can be used only once its transaction has
-- committed.

-- The same shard once more, by a device that was idle and would finish it sooner.
alter type attempt_kind add value 'copy';
-- A counted shard once more, by another worker, to be compared.
alter type attempt_kind add value 'audit';

-- Another attempt at the shard was counted first.
alter type attempt_outcome add value 'superseded';
-- Counted, and taken back when its worker was found to compute wrong numbers.
alter type attempt_outcome add value 'revoked';
