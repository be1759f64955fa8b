-- A generated column stops being one: its values are sent as before, and are given from then on.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10), (2, 20);
-- workload
ALTER TABLE t ALTER twice DROP EXPRESSION;
-- wait
INSERT INTO t VALUES (3, 30, 33);
UPDATE t SET n = 11 WHERE id = 1;
-- expected t: live
--   id | n  | twice
--   1  | 11 | 20
--   2  | 20 | 40
--   3  | 30 | 33
-- history t:
--   column twice is not generated any more
