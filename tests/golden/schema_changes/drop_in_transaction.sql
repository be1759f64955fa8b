-- A column goes in the middle of a transaction, with rows before and behind it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 3, 'before');
UPDATE t SET n = 0, v = 'changed before' WHERE id = 1;
ALTER TABLE t DROP COLUMN n;
INSERT INTO t VALUES (4, 'behind');
UPDATE t SET v = 'changed behind' WHERE id = 2;
DELETE FROM t WHERE id = 3;
COMMIT;
-- expected t: live
--   id | v
--   1  | changed before
--   2  | changed behind
--   4  | behind
-- history t:
--   column n was dropped
