-- A column's statistics target, and much later the table is written anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER COLUMN v SET STATISTICS 500;
-- wait
VACUUM FULL t;
-- wait
INSERT INTO t VALUES (2, 'two');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t: none
