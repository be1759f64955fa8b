-- A generated column stops being one between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10), (2, 20);
-- workload
BEGIN;
INSERT INTO t (id, n) VALUES (3, 30);
ALTER TABLE t ALTER twice DROP EXPRESSION;
INSERT INTO t VALUES (4, 40, 44);
UPDATE t SET n = 11 WHERE id = 1;
COMMIT;
-- expected t: live
--   id | n  | twice
--   1  | 11 | 20
--   2  | 20 | 40
--   3  | 30 | 60
--   4  | 40 | 44
-- history t:
--   column twice is not generated any more
