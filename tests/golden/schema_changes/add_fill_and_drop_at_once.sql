-- A column comes, is filled and goes in one transaction: the log has rows with it, and the catalog knows nothing of it any more.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'three', 3);
UPDATE t SET n = 9, v = 'changed' WHERE id = 1;
ALTER TABLE t DROP COLUMN n;
INSERT INTO t VALUES (4, 'four');
COMMIT;
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
--   3  | three
--   4  | four
-- history t:
--   reloading: table_structure_changed
