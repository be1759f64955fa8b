-- A column keeps its type and gets other values between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1), (2, 2);
-- workload
BEGIN;
INSERT INTO t VALUES (3, 3);
ALTER TABLE t ALTER n TYPE int USING n + 100;
INSERT INTO t VALUES (4, 4);
UPDATE t SET n = 0 WHERE id = 1;
COMMIT;
-- expected t: live
--   id | n
--   1  | 0
--   2  | 102
--   3  | 103
--   4  | 4
-- history t:
--   reloading: table_structure_changed
