-- The key goes, and a row comes with it that cannot be told from others.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey;
INSERT INTO t VALUES (3, 'not followed');
-- expected t: parked table_no_identity
--   id | v
--   1  | one
--   2  | two
-- history t:
--   parked: table_no_identity
