-- The table gets another name between the rows of one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
UPDATE t SET v = 'changed before' WHERE id = 1;
ALTER TABLE t RENAME TO elsewhere;
INSERT INTO elsewhere VALUES (3, 'behind');
DELETE FROM elsewhere WHERE id = 2;
COMMIT;
-- expected t: live
--   id | v
--   1  | changed before
--   3  | behind
-- history t:
--   renamed to table_renamed_with_rows.elsewhere
