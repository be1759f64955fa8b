-- A column is dropped and another one gets its name in another case: to DuckDB the old one is in the way.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text, w text);
INSERT INTO t VALUES (1, 'v1', 'w1');
-- workload
BEGIN;
ALTER TABLE t DROP COLUMN v;
ALTER TABLE t RENAME w TO "V";
COMMIT;
-- wait
INSERT INTO t VALUES (2, 'w2');
-- expected t: live
--   id | V
--   1  | w1
--   2  | w2
-- history t:
--   column v was dropped
--   column w is named V now
