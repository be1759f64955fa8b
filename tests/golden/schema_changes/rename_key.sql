-- The key's column gets another name: it is still the same key.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
-- workload
ALTER TABLE t RENAME id TO number;
-- wait
UPDATE t SET v = 'changed' WHERE number = 1;
UPDATE t SET number = 20 WHERE number = 2;
DELETE FROM t WHERE number = 3;
-- expected t: live
--   number | v
--   1      | changed
--   20     | two
-- history t:
--   column id is named number now
