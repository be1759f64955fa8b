-- A generated column gets another expression between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10), (2, 20);
-- workload
BEGIN;
INSERT INTO t (id, n) VALUES (3, 30);
ALTER TABLE t ALTER twice SET EXPRESSION AS (n * 3);
INSERT INTO t (id, n) VALUES (4, 40);
UPDATE t SET n = 11 WHERE id = 1;
COMMIT;
-- expected t: live
--   id | n  | twice
--   1  | 11 | 33
--   2  | 20 | 60
--   3  | 30 | 90
--   4  | 40 | 120
-- history t:
--   reloading: table_structure_changed
