-- The column's domain has a default and a check, for which the source writes the table anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE DOMAIN score AS int DEFAULT 3 CHECK (VALUE BETWEEN 1 AND 5);
-- workload
ALTER TABLE t ADD COLUMN s score;
INSERT INTO t (id, v) VALUES (3, 'three');
INSERT INTO t VALUES (4, 'four', 5);
-- expected t: live
--   id | v     | s
--   1  | one   | 3
--   2  | two   | 3
--   3  | three | 3
--   4  | four  | 5
-- history t:
--   reloading: table_structure_changed
