-- A generated column goes, and another one that nothing else is made of.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, thrice int GENERATED ALWAYS AS (n * 3) STORED);
INSERT INTO t (id, n) VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t DROP COLUMN twice;
INSERT INTO t (id, n) VALUES (3, 30);
UPDATE t SET n = 11 WHERE id = 1;
-- expected t: live
--   id | n  | thrice
--   1  | 11 | 33
--   2  | 20 | 60
--   3  | 30 | 90
-- history t:
--   column twice was dropped
