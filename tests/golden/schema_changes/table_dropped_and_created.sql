-- The table is dropped and created again with other columns in one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
DROP TABLE t;
CREATE TABLE t (code text PRIMARY KEY, n int);
INSERT INTO t VALUES ('a', 1);
COMMIT;
-- wait
INSERT INTO t VALUES ('b', 2);
-- expected t: live
--   code | n
--   a    | 1
--   b    | 2
-- history t:
--   reloading: table_structure_changed
