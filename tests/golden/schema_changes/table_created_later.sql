-- The table is dropped, and a while later one of its name is created.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
DROP TABLE t;
-- wait
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (2, 'two', 2);
-- wait
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | n
--   2  | two   | 2
--   3  | three | 3
-- history t:
--   parked: table_missing
--   reloading: table_structure_changed
