-- A column is renamed twice in one transaction with rows in between: the catalog never shows the name that they have in the log.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t RENAME a TO b;
INSERT INTO t (id, b) VALUES (2, 'two');
ALTER TABLE t RENAME b TO c;
INSERT INTO t (id, c) VALUES (3, 'three');
COMMIT;
-- expected t: live
--   id | c
--   1  | one
--   2  | two
--   3  | three
-- history t:
--   reloading: table_structure_changed
