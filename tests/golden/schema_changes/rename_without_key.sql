-- Rows are found by all their values, whatever the columns are called.
-- replicate t
-- setup
CREATE TABLE t (a int, b int);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 2), (1, 2), (2, 1), (NULL, 0);
-- workload
BEGIN;
DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE a = 1);
ALTER TABLE t RENAME a TO c;
UPDATE t SET b = 9 WHERE c = 1;
DELETE FROM t WHERE c = 2;
COMMIT;
-- expected t: live
--   c    | b
--   NULL | 0
--   1    | 9
-- history t:
--   column a is named c now
