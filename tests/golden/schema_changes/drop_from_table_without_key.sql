-- Rows are found by all their values: those that are left of them may be equal from then on.
-- replicate t
-- setup
CREATE TABLE t (v text, n int);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES ('a', 1), ('a', 2), ('b', 1);
-- workload
ALTER TABLE t DROP COLUMN n;
DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE v = 'a');
INSERT INTO t VALUES ('b');
-- wait
UPDATE t SET v = 'c' WHERE v = 'b';
-- expected t: live
--   v
--   a
--   c
--   c
-- history t:
--   column n was dropped
