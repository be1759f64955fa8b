-- A change inside a savepoint that is released counts.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
INSERT INTO t VALUES (2, 'before');
SAVEPOINT s;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (3, 'inside', 3);
RELEASE s;
INSERT INTO t VALUES (4, 'behind', 4);
COMMIT;
-- expected t: live
--   id | v      | n
--   1  | one    | 5
--   2  | before | 5
--   3  | inside | 3
--   4  | behind | 4
-- history t:
--   column n was added
