-- A time loses its fractions: existing values are rounded.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, at timestamp);
INSERT INTO t VALUES (1, '2020-02-29 12:34:56.789');
-- workload
ALTER TABLE t ALTER at TYPE timestamp(0);
-- expected t: live
--   id | at
--   1  | 2020-02-29 12:34:57
-- history t:
--   reloading: table_structure_changed
