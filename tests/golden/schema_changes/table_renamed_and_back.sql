-- The table gets another name, rows, and its own name again.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME TO elsewhere;
-- wait
INSERT INTO elsewhere VALUES (2, 'two');
-- wait
ALTER TABLE elsewhere RENAME TO t;
-- wait
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   renamed to table_renamed_and_back.elsewhere
--   renamed to table_renamed_and_back.t
