-- Columns before, between and behind those that stay are dropped at once.
-- replicate t
-- setup
CREATE TABLE t (a int, id int PRIMARY KEY, b text, v text, c text);
INSERT INTO t VALUES (0, 1, 'b', 'one', 'c'), (0, 2, 'b', 'two', 'c');
-- workload
ALTER TABLE t DROP COLUMN a, DROP COLUMN b, DROP COLUMN c;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   column a was dropped
--   column b was dropped
--   column c was dropped
