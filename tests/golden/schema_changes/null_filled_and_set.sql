-- Missing values are filled and forbidden in one transaction, as migrations do.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, NULL), (3, NULL);
-- workload
BEGIN;
UPDATE t SET v = 'none' WHERE v IS NULL;
ALTER TABLE t ALTER v SET NOT NULL;
INSERT INTO t VALUES (4, 'four');
COMMIT;
-- expected t: live
--   id | v
--   1  | one
--   2  | none
--   3  | none
--   4  | four
-- history t:
--   column v may not be NULL now
