-- Two columns of one type swap their names, with rows at every step: the log has three structures, the catalog the last.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int);
INSERT INTO t VALUES (1, 10, 100), (2, 20, 200);
-- workload
BEGIN;
ALTER TABLE t RENAME a TO x;
INSERT INTO t (id, x, b) VALUES (3, 30, 300);
ALTER TABLE t RENAME b TO a;
INSERT INTO t (id, x, a) VALUES (4, 40, 400);
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (5, 500, 50);
COMMIT;
-- expected t: live
--   id | b  | a
--   1  | 10 | 100
--   2  | 20 | 200
--   3  | 30 | 300
--   4  | 40 | 400
--   5  | 50 | 500
-- history t:
--   reloading: table_structure_changed
