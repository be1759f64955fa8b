-- A generated column is not sent: the target gets none, although the source writes the table anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ADD COLUMN twice int GENERATED ALWAYS AS (n * 2) STORED;
-- wait
INSERT INTO t VALUES (3, 30);
UPDATE t SET n = 11 WHERE id = 1;
-- expected t: live
--   id | n
--   1  | 11
--   2  | 20
--   3  | 30
-- history t: none
