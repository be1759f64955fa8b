-- The log has whole rows from now on: the key is still the key.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three');
-- workload
ALTER TABLE t REPLICA IDENTITY FULL;
UPDATE t SET v = 'changed' WHERE id = 1;
DELETE FROM t WHERE id = 2;
-- wait
ALTER TABLE t REPLICA IDENTITY DEFAULT;
UPDATE t SET id = 4 WHERE id = 3;
-- expected t: live
--   id | v
--   1  | changed
--   4  | three
-- history t:
--   its replica identity is full now
--   its replica identity is default now
