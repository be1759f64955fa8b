-- A column comes and goes and comes, as when a deployment is rolled back and tried again.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 1;
INSERT INTO t VALUES (2, 'two', 2);
-- wait
ALTER TABLE t DROP COLUMN n;
INSERT INTO t VALUES (3, 'three');
-- wait
ALTER TABLE t ADD COLUMN n int DEFAULT 9;
INSERT INTO t VALUES (4, 'four', 4);
-- expected t: live
--   id | v     | n
--   1  | one   | 9
--   2  | two   | 9
--   3  | three | 9
--   4  | four  | 4
-- history t:
--   column n was added
--   column n was dropped
--   column n was added
