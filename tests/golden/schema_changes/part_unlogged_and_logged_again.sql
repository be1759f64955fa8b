-- A partition is made unlogged, and later logged again; another one was made unlogged and is detached.
-- replicate t
-- replicate u
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
CREATE TABLE u (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE u_1 PARTITION OF u FOR VALUES FROM (0) TO (10);
INSERT INTO u VALUES (1, 'one');
-- workload
ALTER TABLE t_2 SET UNLOGGED;
CREATE UNLOGGED TABLE u_2 PARTITION OF u FOR VALUES FROM (10) TO (20);
-- wait
INSERT INTO t VALUES (12, 'twelve');
DELETE FROM t WHERE id = 11;
INSERT INTO u VALUES (2, 'two'), (12, 'twelve');
-- wait
ALTER TABLE t_2 SET LOGGED;
ALTER TABLE u DETACH PARTITION u_2;
-- wait
INSERT INTO t VALUES (13, 'thirteen');
INSERT INTO u VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   12 | twelve
--   13 | thirteen
-- history t:
--   parked: table_not_logged
--   reloading: table_partitions_changed
-- expected u: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history u:
--   parked: table_not_logged
--   reloading: table_partitions_changed
