-- Whole rows identify, and have generated columns: one from the beginning, one that comes.
-- replicate t
-- replicate u
-- setup
CREATE TABLE t (n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE u (n int);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE u REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1), (1), (2), (3);
INSERT INTO u VALUES (1), (1), (2), (3);
-- workload
UPDATE t SET n = n + 10 WHERE n = 2;
DELETE FROM t WHERE n = 3;
INSERT INTO t VALUES (1);
-- wait
ALTER TABLE u ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED;
-- wait
UPDATE u SET n = n + 10 WHERE n = 2;
DELETE FROM u WHERE n = 3;
INSERT INTO u VALUES (1);
-- expected t: live
--   n  | twice
--   1  | 2
--   1  | 2
--   1  | 2
--   12 | 24
-- history t: none
-- expected u: live
--   n  | twice
--   1  | 2
--   1  | 2
--   1  | 2
--   12 | 24
-- history u:
--   reloading: table_structure_changed
