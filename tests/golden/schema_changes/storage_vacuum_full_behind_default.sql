-- A column was added with a default, and the table is written anew: the source notes of the column that it changed, not what.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'three', 3);
-- wait
VACUUM FULL t;
-- wait
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v       | n
--   1  | changed | 5
--   2  | two     | 5
--   3  | three   | 3
-- history t:
--   column n was added
--   reloading: table_structure_changed
