-- The table is dropped right behind its last rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
INSERT INTO t VALUES (2, 'two');
-- wait
DROP TABLE t;
-- expected t: parked table_missing
--   id | v
--   1  | one
--   2  | two
-- history t:
--   parked: table_missing
