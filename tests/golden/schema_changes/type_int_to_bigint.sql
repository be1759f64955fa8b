-- A number gets a larger type: the source writes the table anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1), (2, NULL);
-- workload
ALTER TABLE t ALTER n TYPE bigint;
-- wait
INSERT INTO t VALUES (3, 9007199254740993);
-- expected t: live
--   id | n
--   1  | 1
--   2  | NULL
--   3  | 9007199254740993
-- history t:
--   reloading: table_structure_changed
