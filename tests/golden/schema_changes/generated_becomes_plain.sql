-- A generated column stops being one: it is sent from then on, and its values of old rows never were.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ALTER twice DROP EXPRESSION;
-- wait
INSERT INTO t VALUES (3, 30, 33);
-- expected t: live
--   id | n  | twice
--   1  | 10 | 20
--   2  | 20 | 40
--   3  | 30 | 33
-- history t:
--   reloading: table_structure_changed
