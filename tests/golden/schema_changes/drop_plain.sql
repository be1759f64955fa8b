-- A column is dropped, and rows come later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
ALTER TABLE t DROP COLUMN n;
-- wait
INSERT INTO t VALUES (3, 'three');
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
--   3  | three
-- history t:
--   column n was dropped
