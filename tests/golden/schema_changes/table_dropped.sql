-- The table is dropped: it parks, and its rows stay on the target.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
DROP TABLE t;
-- expected t: parked table_missing
--   id | v
--   1  | one
-- history t:
--   parked: table_missing
