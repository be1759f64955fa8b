-- A generated column gets another expression, and all rows other values, which nothing tells: the table is copied anew.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10);
-- workload
ALTER TABLE t ALTER twice SET EXPRESSION AS (n * 3);
INSERT INTO t (id, n) VALUES (2, 20);
-- expected t: live
--   id | n  | twice
--   1  | 10 | 30
--   2  | 20 | 60
-- history t:
--   reloading: table_structure_changed
