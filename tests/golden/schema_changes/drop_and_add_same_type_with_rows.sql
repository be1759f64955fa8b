-- A column is dropped, and one of its name and type comes; rows before and behind look the same in the log.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, n int);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2);
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before', 3);
ALTER TABLE t DROP COLUMN n;
ALTER TABLE t ADD COLUMN n int DEFAULT 0;
INSERT INTO t VALUES (4, 'behind', 4);
COMMIT;
-- expected t: live
--   id | v      | n
--   1  | one    | 0
--   2  | two    | 0
--   3  | before | 0
--   4  | behind | 4
-- history t:
--   reloading: table_structure_changed
