-- The default changes before any row comes: rows from before have the first one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
ALTER TABLE t ALTER n SET DEFAULT 6;
INSERT INTO t (id, v) VALUES (3, 'three');
-- wait
ALTER TABLE t ALTER n DROP DEFAULT;
INSERT INTO t (id, v) VALUES (4, 'four');
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v       | n
--   1  | changed | 5
--   2  | two     | 5
--   3  | three   | 6
--   4  | four    | NULL
-- history t:
--   column n was added
