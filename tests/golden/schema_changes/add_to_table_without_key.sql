-- Rows are found by all their values: a new column belongs to them at once.
-- replicate t
-- setup
CREATE TABLE t (v text, n int);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES ('a', 1), ('a', 1), ('b', 2), (NULL, NULL);
-- workload
ALTER TABLE t ADD COLUMN m int DEFAULT 0;
-- wait
DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE v = 'a');
UPDATE t SET m = 5 WHERE v IS NULL;
INSERT INTO t VALUES ('b', 2);
-- wait
UPDATE t SET n = 3 WHERE v = 'b';
-- expected t: live
--   v    | n    | m
--   NULL | NULL | 5
--   a    | 1    | 0
--   b    | 3    | 0
--   b    | 3    | 0
-- history t:
--   column m was added
