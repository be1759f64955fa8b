-- A foreign table is a partition of a table without a key for a while.
-- replicate t
-- setup
CREATE FOREIGN DATA WRAPPER nothing_part_foreign;
CREATE SERVER nowhere_part_foreign FOREIGN DATA WRAPPER nothing_part_foreign;
CREATE TABLE t (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE t_1 REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'one');
-- workload
CREATE FOREIGN TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20) SERVER nowhere_part_foreign;
INSERT INTO t VALUES (2, 'two');
-- wait
ALTER TABLE t DETACH PARTITION t_2;
-- wait
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   parked: table_not_logged
--   reloading: table_partitions_changed
