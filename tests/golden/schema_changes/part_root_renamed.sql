-- The root gets another name, and a partition too.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME TO elsewhere;
ALTER TABLE t_1 RENAME TO elsewhere_1;
-- wait
INSERT INTO elsewhere VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t:
--   renamed to part_root_renamed.elsewhere
