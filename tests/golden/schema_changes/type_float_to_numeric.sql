-- A float becomes an exact number.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, x double precision);
INSERT INTO t VALUES (1, 0.1), (2, 12345.678);
-- workload
ALTER TABLE t ALTER x TYPE numeric(10, 2);
INSERT INTO t VALUES (3, 1.005);
-- expected t: live
--   id | x
--   1  | 0.10
--   2  | 12345.68
--   3  | 1.01
-- history t:
--   reloading: table_structure_changed
