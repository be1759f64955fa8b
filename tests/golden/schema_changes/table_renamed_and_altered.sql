-- The table gets another name and another column, and later loses one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t RENAME TO elsewhere;
ALTER TABLE elsewhere ADD COLUMN n int DEFAULT 5;
COMMIT;
-- wait
INSERT INTO elsewhere VALUES (2, 'two', 2);
-- wait
ALTER TABLE elsewhere DROP COLUMN v;
-- expected t: live
--   id | n
--   1  | 5
--   2  | 2
-- history t:
--   renamed to table_renamed_and_altered.elsewhere
--   column n was added
--   column v was dropped
