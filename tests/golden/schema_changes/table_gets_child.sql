-- Another table inherits from the replicated one, and a column comes through it.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
CREATE TABLE t_child (PRIMARY KEY (id)) INHERITS (t);
ALTER TABLE t ADD COLUMN n int DEFAULT 5;
INSERT INTO t VALUES (2, 'two', 2);
-- expected t: live
--   id | v   | n
--   1  | one | 5
--   2  | two | 2
-- history t:
--   column n was added
