-- A number loses its limits: what was rounded to its scale stays as it was.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n numeric(5, 2));
INSERT INTO t VALUES (1, 1.50), (2, -0.05), (3, 0);
-- workload
ALTER TABLE t ALTER n TYPE numeric;
-- wait
INSERT INTO t VALUES (4, 1.2345678901234567890), (5, 'NaN'), (6, 'infinity');
-- expected t: live
--   id | n
--   1  | 1.50
--   2  | -0.05
--   3  | 0.00
--   4  | 1.2345678901234567890
--   5  | NaN
--   6  | Infinity
-- history t:
--   column n changed its type
