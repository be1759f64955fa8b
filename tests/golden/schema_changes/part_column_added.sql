-- A column comes through the root with a constant as default.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (10) TO (20);
INSERT INTO t VALUES (1, 'one'), (11, 'eleven');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
-- wait
INSERT INTO t VALUES (2, 'two', 2);
INSERT INTO t VALUES (12, 'twelve');
-- expected t: live
--   id | v      | n
--   1  | one    | 5
--   2  | two    | 2
--   11 | eleven | 5
--   12 | twelve | 5
-- history t:
--   column n was added
