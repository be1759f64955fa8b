-- A domain gives way to the type that it stands for: the values are the same.
-- replicate t
-- setup
CREATE DOMAIN score AS int CHECK (VALUE > 0);
CREATE TABLE t (id int PRIMARY KEY, s score);
INSERT INTO t VALUES (1, 1), (2, 2);
-- workload
ALTER TABLE t ALTER s TYPE int;
INSERT INTO t VALUES (3, -3);
-- expected t: live
--   id | s
--   1  | 1
--   2  | 2
--   3  | -3
-- history t: none
