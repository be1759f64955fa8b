-- A text's values change with a limit that is the old one again in the end: only that the table was written anew tells.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v varchar(5));
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
BEGIN;
ALTER TABLE t ALTER v TYPE text USING upper(v);
ALTER TABLE t ALTER v TYPE varchar(5);
COMMIT;
-- wait
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | ONE
--   2  | TWO
--   3  | three
-- history t:
--   reloading: table_structure_changed
