-- The source lets nobody switch off the log of a published table: everything goes on.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
DO $$
BEGIN
  ALTER TABLE t SET UNLOGGED;
  INSERT INTO t VALUES (9, 'it let us');
EXCEPTION WHEN OTHERS THEN
  INSERT INTO t VALUES (2, 'refused');
END $$;
-- wait
ALTER TABLE t SET LOGGED;
INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   2  | refused
--   3  | three
-- history t: none
