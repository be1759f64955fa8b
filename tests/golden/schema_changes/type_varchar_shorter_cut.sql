-- A text's limit shrinks, and what is longer is cut by the change itself.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(20));
INSERT INTO t VALUES (1, 'one'), (2, 'longer than five');
-- workload
ALTER TABLE t ALTER v TYPE varchar(5) USING left(v, 5);
-- expected t: live
--   id | v
--   1  | one
--   2  | longe
-- history t:
--   reloading: table_structure_changed
