-- The key goes and nothing identifies rows any more: the table parks, and its rows stay as they were.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t DROP CONSTRAINT t_pkey;
-- wait
INSERT INTO t VALUES (3, 'not followed');
-- expected t: parked table_no_identity
--   id | v
--   1  | one
--   2  | two
-- history t:
--   parked: table_no_identity
