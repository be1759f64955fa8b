-- A new partition is created empty and filled: all of it is in the log.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one');
-- workload
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (11, 'eleven');
INSERT INTO t_2 VALUES (12, 'twelve');
-- wait
UPDATE t SET v = 'changed' WHERE id = 11;
-- expected t: live
--   id | v
--   1  | one
--   11 | changed
--   12 | twelve
-- history t: none
