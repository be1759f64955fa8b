-- A column is dropped, and one of its name and type comes with the same statement: no row tells, the catalog does.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
ALTER TABLE t DROP COLUMN n, ADD COLUMN n int;
-- wait
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | n
--   1  | one   | NULL
--   2  | two   | NULL
--   3  | three | 3
-- history t:
--   column n was dropped
--   column n was added
