-- A transaction with a change is rolled back, with rows around it: nothing of it is left.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
INSERT INTO t VALUES (2, 'before');

BEGIN;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (9, 'undone', 9);
ALTER TABLE t DROP COLUMN v;
ROLLBACK;

INSERT INTO t VALUES (3, 'behind');
-- wait
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v
--   1  | changed
--   2  | before
--   3  | behind
-- history t: none
