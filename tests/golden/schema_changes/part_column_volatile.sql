-- A column comes through the root whose values the log does not carry.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
CREATE SEQUENCE numbers START 100;
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT nextval('numbers');
-- expected t: live
--   id | v      | n
--   1  | one    | 100
--   11 | eleven | 101
-- history t:
--   reloading: table_partitions_changed
