-- A value becomes an array of one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, NULL);
-- workload
ALTER TABLE t ALTER v TYPE text[] USING ARRAY[v];
-- expected t: live
--   id | v
--   1  | {one}
--   2  | {NULL}
-- history t:
--   reloading: table_structure_changed
