-- A column gets the name of one that is dropped, and rows come before and behind.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, w text);
INSERT INTO t VALUES (1, 'v1', 'w1'), (2, 'v2', 'w2');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'v3', 'w3');
ALTER TABLE t DROP COLUMN v;
ALTER TABLE t RENAME w TO v;
INSERT INTO t VALUES (4, 'w4');
COMMIT;
-- expected t: live
--   id | v
--   1  | w1
--   2  | w2
--   3  | w3
--   4  | w4
-- history t:
--   reloading: table_structure_changed
