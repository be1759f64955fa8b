-- A generated column comes with values for rows that are there, which nothing tells: the table is copied anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED;
-- wait
INSERT INTO t VALUES (3, 30);
UPDATE t SET n = 11 WHERE id = 1;
-- expected t: live
--   id | n  | twice
--   1  | 11 | 22
--   2  | 20 | 40
--   3  | 30 | 60
-- history t:
--   reloading: table_structure_changed
