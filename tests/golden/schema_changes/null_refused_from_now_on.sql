-- A column of a unique index shall not be NULL from now on; rows that are there may be.
-- replicate t
-- setup
CREATE TABLE t (k int, v text);
CREATE UNIQUE INDEX ON t (k);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'a'), (NULL, 'b'), (NULL, 'c'), (NULL, 'd');
-- workload
ALTER TABLE t ADD CONSTRAINT nn NOT NULL k NOT VALID;
-- wait
DELETE FROM t WHERE v = 'b';
UPDATE t SET k = 2 WHERE v = 'c';
-- expected t: live
--   k    | v
--   NULL | d
--   1    | a
--   2    | c
-- history t:
--   column k may not be NULL now
