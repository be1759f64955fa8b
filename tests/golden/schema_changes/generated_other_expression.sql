-- A generated column gets another expression: it is not sent, whatever it holds.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO t (id, n) VALUES (1, 10);
-- workload
ALTER TABLE t ALTER twice SET EXPRESSION AS (n * 3);
INSERT INTO t (id, n) VALUES (2, 20);
-- expected t: live
--   id | n
--   1  | 10
--   2  | 20
-- history t: none
