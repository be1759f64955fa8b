-- A number becomes a text.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1), (2, 2);
-- workload
ALTER TABLE t ALTER n TYPE text;
-- wait
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | n
--   1  | 1
--   2  | 2
--   3  | three
-- history t:
--   reloading: table_structure_changed
