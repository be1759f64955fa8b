-- A column gets the name of one that is dropped with it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, w text);
INSERT INTO t VALUES (1, 'v1', 'w1'), (2, 'v2', 'w2');
-- workload
BEGIN;
ALTER TABLE t DROP COLUMN v;
ALTER TABLE t RENAME w TO v;
COMMIT;
-- wait
INSERT INTO t VALUES (3, 'v3');
-- expected t: live
--   id | v
--   1  | w1
--   2  | w2
--   3  | v3
-- history t:
--   column v was dropped
--   column w is named v now
