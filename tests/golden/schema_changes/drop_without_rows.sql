-- A column is dropped and no row comes behind it: the catalog tells.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
ALTER TABLE t DROP COLUMN v;
-- expected t: live
--   id | n
--   1  | 1
--   2  | 2
-- history t:
--   column v was dropped
