-- A time gets fractions of a second, first three digits and then all.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, at timestamp(0));
INSERT INTO t VALUES (1, '2020-02-29 12:34:56.7');
-- workload
ALTER TABLE t ALTER at TYPE timestamp(3);
INSERT INTO t VALUES (2, '2020-02-29 12:34:56.7891');
-- wait
ALTER TABLE t ALTER at TYPE timestamp;
-- wait
INSERT INTO t VALUES (3, '2020-02-29 12:34:56.789012');
-- expected t: live
--   id | at
--   1  | 2020-02-29 12:34:57
--   2  | 2020-02-29 12:34:56.789
--   3  | 2020-02-29 12:34:56.789012
-- history t:
--   column at changed its type
