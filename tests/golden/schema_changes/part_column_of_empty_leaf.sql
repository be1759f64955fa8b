-- A column comes through the root, and a partition created later knows nothing of what it fills rows from before with.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
-- wait
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (11, 'eleven', 11);
-- expected t: live
--   id | v      | n
--   1  | one    | 5
--   11 | eleven | 11
-- history t:
--   column n was added
--   reloading: table_partitions_changed
