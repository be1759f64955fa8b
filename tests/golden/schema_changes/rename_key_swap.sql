-- The key swaps names with another column.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 10), (2, 20), (10, 1);
-- workload
BEGIN;
ALTER TABLE t RENAME id TO x;
ALTER TABLE t RENAME n TO id;
ALTER TABLE t RENAME x TO n;
UPDATE t SET id = 0 WHERE n = 10;
DELETE FROM t WHERE n = 2;
COMMIT;
-- expected t: live
--   n  | id
--   1  | 10
--   10 | 0
-- history t:
--   reloading: table_structure_changed
