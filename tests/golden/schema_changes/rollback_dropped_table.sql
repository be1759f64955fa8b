-- The table is dropped, and that is rolled back.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
INSERT INTO t VALUES (2, 'undone');
DROP TABLE t;
ROLLBACK;

INSERT INTO t VALUES (3, 'three');
-- expected t: live
--   id | v
--   1  | one
--   3  | three
-- history t: none
