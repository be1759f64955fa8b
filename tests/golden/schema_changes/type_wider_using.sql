-- A text's limit goes, and its values change with it: the table is written anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ALTER v TYPE text USING v || '!';
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one!
--   2  | two!
--   3  | three
-- history t:
--   reloading: table_structure_changed
