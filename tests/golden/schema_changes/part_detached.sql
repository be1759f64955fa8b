-- A partition is detached: its rows go without a word.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
-- workload
ALTER TABLE t DETACH PARTITION t_2;
-- wait
INSERT INTO t VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t:
--   reloading: table_partitions_changed
