-- A column of the root gets a wider type.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, w varchar(5)) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER w TYPE varchar(20);
-- wait
INSERT INTO t VALUES (2, 'longer than five');
-- expected t: live
--   id | w
--   1  | one
--   2  | longer than five
-- history t:
--   reloading: table_structure_changed
