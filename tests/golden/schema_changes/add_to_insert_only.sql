-- A table without identity whose inserts alone are followed.
-- replicate t insert_only
-- setup
CREATE TABLE t (v text);
INSERT INTO t VALUES ('a'), ('b');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES ('c', 6);
INSERT INTO t VALUES ('d');
-- expected t: live
--   v | n
--   a | 5
--   b | 5
--   c | 6
--   d | 5
-- history t:
--   column n was added
