-- A column is added, dropped and added again in one transaction: the log has values of the first one, which the rows do not have.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
-- workload
BEGIN;
ALTER TABLE t ADD COLUMN v varchar(60);
INSERT INTO t VALUES (2, 'gone'), (3, 'gone');
ALTER TABLE t DROP COLUMN v;
ALTER TABLE t ADD COLUMN v varchar(60);
UPDATE t SET v = 'again' WHERE id = 3;
INSERT INTO t VALUES (4, 'stays');
COMMIT;
-- expected t: live
--   id | v
--   1  | NULL
--   2  | NULL
--   3  | again
--   4  | stays
-- history t:
--   reloading: table_structure_changed
