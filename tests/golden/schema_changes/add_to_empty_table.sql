-- There is no row to fill.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
-- wait
ALTER TABLE t ADD COLUMN m serial;
-- wait
INSERT INTO t VALUES (1, 'one', 1);
-- expected t: live
--   id | v   | n | m
--   1  | one | 1 | 1
-- history t:
--   column n was added
--   reloading: table_structure_changed
