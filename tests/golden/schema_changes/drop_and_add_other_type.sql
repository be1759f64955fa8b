-- A column is dropped, and one of its name and another type comes with the same statement.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
INSERT INTO t VALUES (1, 1, 'one'), (2, 2, 'two');
-- workload
ALTER TABLE t DROP COLUMN n, ADD COLUMN n text DEFAULT 'none';
INSERT INTO t (id, v) VALUES (3, 'three');
UPDATE t SET v = 'changed' WHERE id = 1;
-- expected t: live
--   id | v       | n
--   1  | changed | none
--   2  | two     | none
--   3  | three   | none
-- history t:
--   column n was dropped
--   column n was added
