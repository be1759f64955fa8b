-- A change that writes the table anew is rolled back: the rows are as they were.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1);
-- workload
BEGIN;
INSERT INTO t VALUES (2, 2);
SAVEPOINT s;
ALTER TABLE t ALTER n TYPE bigint USING n + 100;
INSERT INTO t VALUES (9, 9);
ROLLBACK TO s;
INSERT INTO t VALUES (3, 3);
COMMIT;
-- expected t: live
--   id | n
--   1  | 1
--   2  | 2
--   3  | 3
-- history t: none
