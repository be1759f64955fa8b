-- A number gets more digits than a number of DuckDB has.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n numeric(5, 2));
INSERT INTO t VALUES (1, 1.50), (2, -0.05);
-- workload
BEGIN;
INSERT INTO t VALUES (3, 3);
ALTER TABLE t ALTER n TYPE numeric(50, 2);
INSERT INTO t VALUES (4, 12345678901234567890123456789012345678901234.12);
COMMIT;
-- expected t: live
--   id | n
--   1  | 1.50
--   2  | -0.05
--   3  | 3.00
--   4  | 123456789012… 47 characters
-- history t:
--   column n changed its type
