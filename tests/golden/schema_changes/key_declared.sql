-- The key was declared, and another column is added and dropped.
-- replicate t key=code
-- setup
CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v text);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'a', 'one'), (2, 'b', 'two');
-- workload
ALTER TABLE t ADD COLUMN n int DEFAULT 1;
UPDATE t SET v = 'changed' WHERE code = 'a';
-- wait
ALTER TABLE t DROP COLUMN v;
DELETE FROM t WHERE code = 'b';
-- expected t: live
--   id | code | n
--   1  | a    | 1
-- history t:
--   column n was added
--   column v was dropped
