-- The table is written anew, rows come, and then a type gets wider: by then the new storage is the known one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
VACUUM FULL t;
-- wait
INSERT INTO t VALUES (3, 'three');
-- wait
ALTER TABLE t ALTER v TYPE varchar(20);
INSERT INTO t VALUES (4, 'longer than five');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
--   4  | longer than five
-- history t:
--   column v changed its type
