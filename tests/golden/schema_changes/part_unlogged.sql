-- A new partition is unlogged: its rows are not in the log.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one');
-- workload
CREATE UNLOGGED TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (11, 'eleven');
-- wait
INSERT INTO t VALUES (12, 'twelve'), (3, 'three');
-- expected t: parked table_not_logged
--   id | v
--   1  | one
-- history t:
--   parked: table_not_logged
