-- The table moves to another schema.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
CREATE SCHEMA table_moved_here;
-- workload
ALTER TABLE t SET SCHEMA table_moved_here;
-- wait
INSERT INTO table_moved_here.t VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t:
--   renamed to table_moved_here.t
