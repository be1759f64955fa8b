-- Two columns swap their names, and that is rolled back between rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int);
INSERT INTO t VALUES (1, 10, 100);
-- workload
BEGIN;
INSERT INTO t (id, a, b) VALUES (2, 20, 200);
SAVEPOINT s;
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
INSERT INTO t (id, a, b) VALUES (9, 9, 9);
ROLLBACK TO s;
INSERT INTO t (id, a, b) VALUES (3, 30, 300);
COMMIT;
-- expected t: live
--   id | a  | b
--   1  | 10 | 100
--   2  | 20 | 200
--   3  | 30 | 300
-- history t: none
