-- A column gets another name in the middle of a transaction with rows before and behind it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
UPDATE t SET v = 'changed before' WHERE id = 1;
ALTER TABLE t RENAME v TO words;
INSERT INTO t VALUES (4, 'behind');
UPDATE t SET words = 'changed behind' WHERE id = 2;
COMMIT;
-- expected t: live
--   id | words
--   1  | changed before
--   2  | changed behind
--   3  | before
--   4  | behind
-- history t:
--   column v is named words now
