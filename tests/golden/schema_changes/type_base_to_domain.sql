-- A type gives way to a domain over it: the values are the same.
-- replicate t
-- setup
CREATE DOMAIN word AS text;
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ALTER v TYPE word;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t: none
