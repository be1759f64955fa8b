-- A column is renamed and gets its name back in one transaction.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, a text);
INSERT INTO t VALUES (1, 'one');
-- workload
BEGIN;
ALTER TABLE t RENAME a TO b;
ALTER TABLE t RENAME b TO a;
INSERT INTO t VALUES (2, 'two');
COMMIT;
-- expected t: live
--   id | a
--   1  | one
--   2  | two
-- history t: none
