-- A column keeps its type and gets other values: nothing in the log tells.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1), (2, 2);
-- workload
ALTER TABLE t ALTER n TYPE int USING n + 100;
-- expected t: live
--   id | n
--   1  | 101
--   2  | 102
-- history t:
--   reloading: table_structure_changed
