-- The table is dropped, and the one that gets its name has no identity until later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
DROP TABLE t;
-- wait
CREATE TABLE t (id int, v text);
INSERT INTO t VALUES (2, 'two');
-- expected t: parked table_no_identity
--   id | v
--   1  | one
-- history t:
--   parked: table_missing
--   parked: table_no_identity
