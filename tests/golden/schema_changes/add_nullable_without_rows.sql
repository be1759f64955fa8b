-- A column is added and no row comes behind it: the catalog tells.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN n int;
-- expected t: live
--   id | v   | n
--   1  | one | NULL
--   2  | two | NULL
-- history t:
--   column n was added
