-- Two columns swap their names and swap them back, with rows in each state: what is there now looks as what was.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int);
INSERT INTO t VALUES (1, 10, 100);
-- workload
BEGIN;
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (2, 200, 20);
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (3, 30, 300);
COMMIT;
-- expected t: live
--   id | a  | b
--   1  | 10 | 100
--   2  | 20 | 200
--   3  | 30 | 300
-- history t:
--   reloading: table_structure_changed
