-- The table is written anew and a column is added before anybody looked: it looks as if its rows had got values.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
-- workload
VACUUM FULL t;

ALTER TABLE t ADD COLUMN n int;
INSERT INTO t VALUES (3, 'three', 3);
-- expected t: live
--   id | v     | n
--   1  | one   | NULL
--   2  | two   | NULL
--   3  | three | 3
-- history t:
--   reloading: table_structure_changed
