-- A column that was added with a default is dropped again.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (2, 'two', 2);
-- wait
ALTER TABLE t DROP COLUMN n;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   column n was added
--   column n was dropped
