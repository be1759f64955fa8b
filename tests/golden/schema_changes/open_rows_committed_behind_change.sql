-- A transaction writes, the structure changes in one that commits earlier, and the rows of both are told in the order of commits.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE elsewhere (id int);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
-- session b
BEGIN;
INSERT INTO elsewhere VALUES (1);
-- session a
BEGIN;
UPDATE t SET v = 'by a' WHERE id = 1;
ALTER TABLE t DROP COLUMN v, ADD COLUMN v int DEFAULT 7;
COMMIT;
-- session b
UPDATE t SET v = 8 WHERE id = 2;
COMMIT;
-- expected t: live
--   id | v
--   1  | 7
--   2  | 8
-- history t:
--   column v was dropped
--   column v was added
