-- Two columns of one type swap their names between rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int);
INSERT INTO t VALUES (1, 10, 100), (2, 20, 200);
-- workload
BEGIN;
INSERT INTO t (id, a, b) VALUES (3, 30, 300);
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (4, 400, 40);
UPDATE t SET a = 0 WHERE id = 1;
COMMIT;
-- expected t: live
--   id | b  | a
--   1  | 10 | 0
--   2  | 20 | 200
--   3  | 30 | 300
--   4  | 40 | 400
-- history t:
--   reloading: table_structure_changed
