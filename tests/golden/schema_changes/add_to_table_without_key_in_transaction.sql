-- Rows are found by all their values, and the column comes between their changes.
-- replicate t
-- setup
CREATE TABLE t (v text, n int);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES ('a', 1), ('a', 1), ('b', 2), ('c', 3);
-- workload
BEGIN;
UPDATE t SET n = 9 WHERE v = 'b';
INSERT INTO t VALUES ('d', 4);
ALTER TABLE t ADD COLUMN m int DEFAULT 0;
DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE v = 'a');
UPDATE t SET m = 1 WHERE v IN ('b', 'd');
DELETE FROM t WHERE v = 'c';
COMMIT;
-- expected t: live
--   v | n | m
--   a | 1 | 0
--   b | 9 | 1
--   d | 4 | 1
-- history t:
--   column m was added
