-- A column gets another name, and rows come later.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t RENAME v TO words;
-- wait
INSERT INTO t VALUES (3, 'three');
UPDATE t SET words = 'changed' WHERE id = 1;
-- expected t: live
--   id | words
--   1  | changed
--   2  | two
--   3  | three
-- history t:
--   column v is named words now
