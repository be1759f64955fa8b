-- The table gets another name; its place on the target stays.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME TO elsewhere;
-- wait
INSERT INTO elsewhere VALUES (2, 'two');
UPDATE elsewhere SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
-- history t:
--   renamed to table_renamed.elsewhere
