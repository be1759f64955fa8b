-- A table with rows becomes a partition: the log does not tell of them.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
INSERT INTO t_2 VALUES (11, 'eleven');
-- workload
ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20);
-- wait
INSERT INTO t VALUES (12, 'twelve');
-- expected t: live
--   id | v
--   1  | one
--   11 | eleven
--   12 | twelve
-- history t:
--   reloading: table_partitions_changed
