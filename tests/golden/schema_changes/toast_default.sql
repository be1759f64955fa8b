-- A column comes with a large default, and rows are updated beside it: the log does not carry what was never stored.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
ALTER TABLE t ADD COLUMN large text DEFAULT repeat('abcdefgh', 1000);
UPDATE t SET v = 'changed' WHERE id = 1;
-- wait
UPDATE t SET v = 'changed again' WHERE id = 1;
INSERT INTO t (id, v) VALUES (3, 'three');
-- expected t: live
--   id | v             | large
--   1  | changed again | abcdefghabcd… 8000 characters
--   2  | two           | abcdefghabcd… 8000 characters
--   3  | three         | abcdefghabcd… 8000 characters
-- history t:
--   column large was added
