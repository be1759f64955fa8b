-- The table gets another name, and is then changed so that it has to be copied anew, under that name.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t VALUES (1, 1);
-- workload
ALTER TABLE t RENAME TO elsewhere;
-- wait
ALTER TABLE elsewhere ALTER n TYPE bigint USING n + 100;
-- wait
INSERT INTO elsewhere VALUES (2, 2);
-- expected t: live
--   id | n
--   1  | 101
--   2  | 2
-- history t:
--   renamed to table_renamed_and_written_anew.elsewhere
--   reloading: table_structure_changed
