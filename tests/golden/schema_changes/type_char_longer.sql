-- A padded text gets longer: each value is padded anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v char(3));
INSERT INTO t VALUES (1, 'a'), (2, 'abc');
-- workload
ALTER TABLE t ALTER v TYPE char(6);
INSERT INTO t VALUES (3, 'abcdef');
-- expected t: live
--   id | v
--   1  | a
--   2  | abc
--   3  | abcdef
-- history t:
--   reloading: table_structure_changed
