-- A column is added with a constant as default, and no row comes behind it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
-- expected t: live
--   id | v   | n
--   1  | one | 5
--   2  | two | 5
-- history t:
--   column n was added
