-- A partition with its columns in another order is attached empty, and columns come and go through the root.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 (gone int, n int, v text, id int PRIMARY KEY);
ALTER TABLE t_2 DROP COLUMN gone;
INSERT INTO t VALUES (1, 'one', 1);
-- workload
ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10) TO (20);
-- wait
INSERT INTO t VALUES (11, 'eleven', 11);
INSERT INTO t_2 VALUES (12, 'twelve', 12);
-- wait
ALTER TABLE t ADD COLUMN m text DEFAULT 'm', DROP COLUMN n;
UPDATE t SET m = 'changed' WHERE id = 12;
-- expected t: live
--   id | v      | m
--   1  | one    | m
--   11 | eleven | m
--   12 | twelve | changed
-- history t:
--   reloading: table_partitions_changed
--   column n was dropped
--   column m was added
