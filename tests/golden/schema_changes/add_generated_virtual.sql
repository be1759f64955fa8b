-- A virtual column is in no log: the source is asked for its values.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) VIRTUAL;
-- wait
INSERT INTO t VALUES (3, 30);
UPDATE t SET n = 11 WHERE id = 1;
-- wait
ALTER TABLE t RENAME n TO m;
UPDATE t SET m = 12 WHERE id = 1;
-- wait
ALTER TABLE t RENAME twice TO double;
INSERT INTO t VALUES (4, 40);
-- wait
ALTER TABLE t DROP COLUMN double;
INSERT INTO t VALUES (5, 50);
-- expected t: live
--   id | m
--   1  | 12
--   2  | 20
--   3  | 30
--   4  | 40
--   5  | 50
-- history t:
--   reloading: table_structure_changed
--   column n is named m now
--   column twice is named double now
--   column double was dropped
