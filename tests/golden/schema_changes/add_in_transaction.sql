-- A column comes in the middle of a transaction, with rows before and behind it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'before');
UPDATE t SET v = 'changed before' WHERE id = 1;
ALTER TABLE t ADD COLUMN n int DEFAULT 7;
INSERT INTO t VALUES (4, 'behind', 8);
UPDATE t SET v = 'changed behind' WHERE id = 2;
UPDATE t SET n = NULL WHERE id = 3;
COMMIT;
-- expected t: live
--   id | v              | n
--   1  | changed before | 7
--   2  | changed behind | 7
--   3  | before         | NULL
--   4  | behind         | 8
-- history t:
--   column n was added
