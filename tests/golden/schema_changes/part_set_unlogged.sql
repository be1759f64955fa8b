-- A partition is made unlogged: what happens to its rows from then on is not in the log.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
-- workload
ALTER TABLE t_2 SET UNLOGGED;
-- wait
INSERT INTO t VALUES (12, 'twelve');
DELETE FROM t WHERE id = 11;
-- expected t: parked table_not_logged
--   id | v
--   1  | one
--   11 | eleven
-- history t:
--   parked: table_not_logged
