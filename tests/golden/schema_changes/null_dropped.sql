-- A column may be NULL from now on.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t ALTER v DROP NOT NULL;
INSERT INTO t VALUES (2, NULL);
UPDATE t SET v = NULL WHERE id = 1;
-- expected t: live
--   id | v
--   1  | NULL
--   2  | NULL
-- history t:
--   column v may be NULL now
