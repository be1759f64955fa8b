-- A number gets more digits behind the point: each value is printed with more of them.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n numeric(5, 2));
INSERT INTO t VALUES (1, 1.50), (2, NULL);
-- workload
ALTER TABLE t ALTER n TYPE numeric(10, 4);
INSERT INTO t VALUES (3, 1.2345);
-- expected t: live
--   id | n
--   1  | 1.5000
--   2  | NULL
--   3  | 1.2345
-- history t:
--   reloading: table_structure_changed
