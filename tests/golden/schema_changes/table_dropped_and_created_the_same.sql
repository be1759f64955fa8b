-- The table is dropped and created again just as it was, with other rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
INSERT INTO t VALUES (2, 'two');

DROP TABLE t;
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (2, 'of the new table');
-- expected t: live
--   id | v
--   2  | of the new table
-- history t:
--   reloading: table_structure_changed
