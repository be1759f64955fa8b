-- A change is rolled back to a savepoint, and another one is made in its place, with a column of the same name.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
SAVEPOINT s;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (9, 'undone', 9);
ROLLBACK TO s;
ALTER TABLE t ADD COLUMN n text DEFAULT 'five';
INSERT INTO t VALUES (2, 'two', 'second');
COMMIT;
-- expected t: live
--   id | v   | n
--   1  | one | five
--   2  | two | second
-- history t:
--   column n was added
