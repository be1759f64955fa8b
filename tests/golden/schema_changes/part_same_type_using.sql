-- A column of the root keeps its type and gets other values: the partitions are written anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 1);
-- workload
ALTER TABLE t ALTER n TYPE int USING n + 100;
-- wait
INSERT INTO t VALUES (2, 2);
-- expected t: live
--   id | n
--   1  | 101
--   2  | 2
-- history t:
--   reloading: table_partitions_changed
