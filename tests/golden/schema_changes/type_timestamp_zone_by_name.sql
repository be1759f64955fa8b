-- A time is taken for one of another zone: its instant changes.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, at timestamp);
INSERT INTO t VALUES (1, '2020-06-01 12:00:00');
-- workload
ALTER TABLE t ALTER at TYPE timestamptz USING at AT TIME ZONE 'Asia/Tokyo';
INSERT INTO t VALUES (2, '2020-06-01 12:00:00+00');
-- expected t: live
--   id | at
--   1  | 2020-06-01 03:00:00+00
--   2  | 2020-06-01 12:00:00+00
-- history t:
--   reloading: table_structure_changed
