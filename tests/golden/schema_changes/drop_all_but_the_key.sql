-- Only the key is left.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t DROP COLUMN v;
INSERT INTO t VALUES (3);
UPDATE t SET id = 4 WHERE id = 1;
-- expected t: live
--   id
--   2
--   3
--   4
-- history t:
--   column v was dropped
