-- A number gets more digits before the point.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n numeric(5, 2));
INSERT INTO t VALUES (1, 1.50), (2, NULL);
-- workload
ALTER TABLE t ALTER n TYPE numeric(12, 2);
-- wait
INSERT INTO t VALUES (3, 1234567890.12);
UPDATE t SET n = 2 WHERE id = 2;
-- expected t: live
--   id | n
--   1  | 1.50
--   2  | 2.00
--   3  | 1234567890.12
-- history t:
--   column n changed its type
