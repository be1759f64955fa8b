-- A virtual column is nowhere but in the catalog.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) VIRTUAL;
INSERT INTO t VALUES (3, 30);
-- wait
ALTER TABLE t DROP COLUMN twice;
INSERT INTO t VALUES (4, 40);
-- expected t: live
--   id | n
--   1  | 10
--   2  | 20
--   3  | 30
--   4  | 40
-- history t: none
