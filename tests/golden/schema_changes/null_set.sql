-- A column may not be NULL any more: nothing on the target changes, and the history says so with the next row.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER v SET NOT NULL;
INSERT INTO t VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t:
--   column v may not be NULL now
