-- The key's only column is dropped, and the key with it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t DROP COLUMN id;
-- expected t: parked table_no_identity
--   id | v
--   1  | one
--   2  | two
-- history t:
--   parked: table_no_identity
