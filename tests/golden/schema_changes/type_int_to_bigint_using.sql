-- A number gets a larger type and other values with it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1), (2, 2);
-- workload
ALTER TABLE t ALTER n TYPE bigint USING n * 1000;
INSERT INTO t VALUES (3, 3000);
-- expected t: live
--   id | n
--   1  | 1000
--   2  | 2000
--   3  | 3000
-- history t:
--   reloading: table_structure_changed
