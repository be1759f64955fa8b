-- A column of the root gets another name, and another one a wider type.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, w varchar(5)) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10);
INSERT INTO t VALUES (1, 'one', 'w');
-- workload
ALTER TABLE t RENAME v TO words;
-- wait
INSERT INTO t VALUES (2, 'two', 'w');
-- wait
ALTER TABLE t ALTER w TYPE varchar(20);
INSERT INTO t VALUES (3, 'three', 'longer than five');
-- expected t: live
--   id | words | w
--   1  | one   | w
--   2  | two   | w
--   3  | three | longer than five
-- history t:
--   column v is named words now
--   reloading: table_structure_changed
