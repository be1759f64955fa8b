-- A text loses its limit.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER v TYPE text;
INSERT INTO t VALUES (2, repeat('long ', 7));
-- expected t: live
--   id | v
--   1  | one
--   2  | long long long long long long long
-- history t:
--   column v changed its type
