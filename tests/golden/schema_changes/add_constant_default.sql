-- A column is added with a constant as default: rows from before have it, without being written.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t (id, v) VALUES (4, 'four');
INSERT INTO t VALUES (5, 'five', NULL);
UPDATE t SET v = 'changed' WHERE id = 2;
-- expected t: live
--   id | v       | n
--   1  | one     | 5
--   2  | changed | 5
--   3  | three   | 5
--   4  | four    | 5
--   5  | five    | NULL
-- history t:
--   column n was added
