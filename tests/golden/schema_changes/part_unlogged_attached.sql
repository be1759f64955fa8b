-- An unlogged table becomes a partition.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE UNLOGGED TABLE t_2 (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20);
-- wait
INSERT INTO t VALUES (11, 'eleven');
-- expected t: parked table_not_logged
--   id | v
--   1  | one
-- history t:
--   parked: table_not_logged
