-- A column comes and goes in one transaction: nothing is left of it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
ALTER TABLE t DROP COLUMN n;
INSERT INTO t VALUES (2, 'two');
COMMIT;
-- expected t: live
--   id | v
--   1  | one
--   2  | two
-- history t: none
