-- A column was dropped, and later another one gets its name. Rows from before do not have its old values.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
ALTER TABLE t DROP COLUMN n;
-- wait
INSERT INTO t VALUES (3, 'three');
-- wait
ALTER TABLE t ADD COLUMN n int DEFAULT 9;
INSERT INTO t (id, v) VALUES (4, 'four');
-- expected t: live
--   id | v     | n
--   1  | one   | 9
--   2  | two   | 9
--   3  | three | 9
--   4  | four  | 9
-- history t:
--   column n was dropped
--   column n was added
