-- A time gets a zone and loses it again: where the zone is UTC, the source writes nothing anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, at timestamp);
INSERT INTO t VALUES (1, '2020-02-29 12:34:56');
-- workload
ALTER TABLE t ALTER at TYPE timestamptz;
INSERT INTO t VALUES (2, '2020-02-29 12:34:56+02');
-- wait
ALTER TABLE t ALTER at TYPE timestamp;
-- expected t: live
--   id | at
--   1  | 2020-02-29 12:34:56
--   2  | 2020-02-29 10:34:56
-- history t:
--   reloading: table_structure_changed
