-- The table is written anew with the same rows: nothing changes.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
VACUUM FULL t;
-- wait
INSERT INTO t VALUES (3, 'three');
-- wait
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v
--   1  | changed
--   2  | two
--   3  | three
-- history t: none
