-- Two columns of one type swap their names, and no row tells.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a int, b int);
INSERT INTO t VALUES (1, 10, 100), (2, 20, 200);
-- workload
BEGIN;
ALTER TABLE t RENAME a TO x;
ALTER TABLE t RENAME b TO a;
ALTER TABLE t RENAME x TO b;
COMMIT;
-- wait
INSERT INTO t (id, a, b) VALUES (3, 300, 30);
-- expected t: live
--   id | b  | a
--   1  | 10 | 100
--   2  | 20 | 200
--   3  | 30 | 300
-- history t:
--   column a is named b now
--   column b is named a now
