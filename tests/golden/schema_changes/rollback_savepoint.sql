-- A change is rolled back to a savepoint, and the transaction goes on with rows of the old structure.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
INSERT INTO t VALUES (2, 'before');
SAVEPOINT s;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (9, 'undone', 9);
ROLLBACK TO s;
INSERT INTO t VALUES (3, 'behind');
COMMIT;
-- expected t: live
--   id | v
--   1  | one
--   2  | before
--   3  | behind
-- history t: none
