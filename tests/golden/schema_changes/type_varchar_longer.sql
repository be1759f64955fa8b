-- A text's limit grows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER v TYPE varchar(20);
-- wait
INSERT INTO t VALUES (2, 'longer than five');
-- expected t: live
--   id | v
--   1  | one
--   2  | longer than five
-- history t:
--   column v changed its type
