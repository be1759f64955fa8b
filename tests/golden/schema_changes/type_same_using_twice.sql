-- A column is changed in two ways at once: one would be followed, the other has other values.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a varchar(5), b int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
ALTER TABLE t ALTER a TYPE varchar(10), ALTER b TYPE int USING -b;
INSERT INTO t VALUES (3, 'up to ten', 3);
-- expected t: live
--   id | a         | b
--   1  | one       | -1
--   2  | two       | -2
--   3  | up to ten | 3
-- history t:
--   reloading: table_structure_changed
