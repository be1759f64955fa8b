-- The new name differs in case only, which DuckDB takes for the same.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
ALTER TABLE t RENAME v TO "V";
-- wait
INSERT INTO t VALUES (2, 'two');
-- wait
ALTER TABLE t RENAME "V" TO v;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   column v is named V now
--   column V is named v now
