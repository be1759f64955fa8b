-- The key's column gets another name between the changes of rows that it tells apart.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
-- workload
BEGIN;
UPDATE t SET id = 10 WHERE id = 1;
ALTER TABLE t RENAME id TO number;
UPDATE t SET v = 'changed' WHERE number = 10;
UPDATE t SET number = 20 WHERE number = 2;
DELETE FROM t WHERE number = 3;
COMMIT;
-- expected t: live
--   number | v
--   10     | changed
--   20     | two
-- history t:
--   column id is named number now
