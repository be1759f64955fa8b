-- Partitions compute the column each in a way of its own, and one of them in another way later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, made int GENERATED ALWAYS AS (n * 2) STORED) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE high (made int GENERATED ALWAYS AS (n * 5) STORED, id int NOT NULL, n int);
ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (10) TO (20);
INSERT INTO t (id, n) VALUES (1, 1), (11, 1);
-- workload
INSERT INTO t (id, n) VALUES (2, 2), (12, 2);
UPDATE t SET n = 3 WHERE id IN (1, 11);
UPDATE t SET id = 13 WHERE id = 2;
-- wait
ALTER TABLE high ALTER made SET EXPRESSION AS (n * 7);
-- wait
INSERT INTO t (id, n) VALUES (14, 4);
-- expected t: live
--   id | n | made
--   1  | 3 | 6
--   11 | 3 | 21
--   12 | 2 | 14
--   13 | 2 | 14
--   14 | 4 | 28
-- history t:
--   reloading: table_partitions_changed
