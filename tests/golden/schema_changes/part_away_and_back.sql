-- A partition is detached, changed and attached again in one transaction, and so is one with partitions of its own.
-- replicate t
-- replicate u
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven'), (12, 'twelve');
CREATE TABLE u (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE u_1 PARTITION OF u FOR VALUES FROM (0) TO (10);
CREATE TABLE u_2 PARTITION OF u FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE u_2_1 PARTITION OF u_2 FOR VALUES FROM (10) TO (20);
INSERT INTO u VALUES (1, 'one'), (11, 'eleven'), (12, 'twelve');
-- workload
BEGIN;
ALTER TABLE t DETACH PARTITION t_2;
DELETE FROM t_2 WHERE id = 11;
UPDATE t_2 SET v = 'changed' WHERE id = 12;
INSERT INTO t_2 VALUES (13, 'thirteen');
ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20);
COMMIT;
BEGIN;
ALTER TABLE u DETACH PARTITION u_2;
DELETE FROM u_2 WHERE id = 11;
UPDATE u_2 SET v = 'changed' WHERE id = 12;
ALTER TABLE u ATTACH PARTITION u_2 FOR VALUES FROM (10) TO (30);
COMMIT;
-- wait
INSERT INTO t VALUES (2, 'two');
INSERT INTO u VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   12 | changed
--   13 | thirteen
-- history t:
--   reloading: table_partitions_changed
-- expected u: live
--   id | v
--   1  | one
--   2  | two
--   12 | changed
-- history u:
--   reloading: table_partitions_changed
